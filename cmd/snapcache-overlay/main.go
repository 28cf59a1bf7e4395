// Snapcache-overlay makes the informers of a program on client-go durable without a change of its source. It writes
// the files of such a build, and prints the flags of the go command:
//
//	GOFLAGS="$(snapcache-overlay ./cmd/controller)" go build ./cmd/controller
//	SNAPCACHE_INFORMER_DIR=/var/cache/controller ./controller
//
// See docs/unmodified.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
)

const usage = `Usage: snapcache-overlay [-out DIR] [PACKAGES]

Prints flags for the go command, with which the main packages in PACKAGES (.)
are built with durable informers:

   export GOFLAGS="$(snapcache-overlay ./cmd/controller)"
   go build ./cmd/controller
   SNAPCACHE_INFORMER_DIR=/var/cache/controller ./controller

Without SNAPCACHE_INFORMER_DIR the program is as before. No file of the program
is changed; delete DIR when you no longer build with it.

`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "snapcache-overlay:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("snapcache-overlay", flag.ContinueOnError)
	out := flags.String("out", ".snapcache", "`directory` for the files of the build")
	source := flags.String("source", "", "`directory` with snapcache's source, in place of the version of this command")
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	o := overlay{program: program{dir: "."}, patterns: flags.Args(), version: "v0.0.0"}
	if len(o.patterns) == 0 {
		o.patterns = []string{"."}
	}
	var err error
	if o.out, err = filepath.Abs(*out); err != nil {
		return err
	}
	if *source != "" {
		o.source, err = filepath.Abs(*source)
	} else {
		o.version, err = ownVersion()
	}
	if err != nil {
		return err
	}
	lines, err := o.write(ctx)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(lines, " "))
	return nil
}

// ownVersion returns the version of snapcache that the command was built from.
func ownVersion() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Path != self || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "", fmt.Errorf("the command was not built from a released version: name the directory of its source with -source")
	}
	return info.Main.Version, nil
}
