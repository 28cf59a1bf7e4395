package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/kubectl"
)

const outputBufferBytes = 64 << 10

const appDescription = `snapcache lists and watches a kube-apiserver and stores the objects in one file.
After a restart, a crash or a power cut it answers from that file at once and
resumes its watches.

   snapcache run --config agent.yaml     run the agent
   snapcache status                      how fresh is the cache?
   snapcache get pods -n shop            print cached objects as kubectl does, with an agent or without
   snapcache dump pods -o ndjson         print them for programs
   snapcache changes pods --since 1h     print what was added, modified and deleted

Exit codes:
   0  ok
   1  failure
   2  wrong usage or configuration
   3  not ready: a requested resource has no complete list yet
   4  corrupt: stored records could not be read (the others were printed), or
      check found another problem
   5  too old: the history no longer reaches back that far
   6  drift: verify found differences from the server and did not repair them`

func newApp(out, errOut io.Writer) *cli.App {
	app := &cli.App{
		Name:           "snapcache",
		HelpName:       "snapcache",
		Usage:          "a durable Kubernetes watch cache for edge nodes",
		UsageText:      "snapcache COMMAND [ARGUMENTS] [OPTIONS]",
		Description:    appDescription,
		Version:        programVersion(),
		Writer:         out,
		ErrWriter:      errOut,
		Action:         noCommand,
		OnUsageError:   wrongUsage,
		ExitErrHandler: func(*cli.Context, error) {}, // execute reports the error
		Commands: []*cli.Command{
			runCommand(), reloadCommand(), statusCommand(), getCommand(), inspectCommand(), dumpCommand(), changesCommand(), serveCommand(),
			verifyCommand(), checkCommand(), compactCommand(), resetCommand(), snapshotCommand(), configCommand(),
			kubeconfigCommand(), patchCommand(), versionCommand(), completionCommand(), manCommand(),
		},
	}
	for _, c := range app.Commands {
		finish(c)
	}
	return app
}

func finish(c *cli.Command) {
	c.OnUsageError = wrongUsage
	if len(c.Subcommands) == 0 {
		c.HideHelpCommand = true
		return
	}
	c.Action = noCommand
	for _, sub := range c.Subcommands {
		finish(sub)
	}
}

func execute(args []string, out, errOut io.Writer) int {
	buffered := bufio.NewWriterSize(out, outputBufferBytes)
	app := newApp(buffered, errOut)
	asPlugin(app, args)
	if words, ok := completionRequest(args); ok {
		complete(app, words, buffered)
		return exitCode(buffered.Flush())
	}
	err := app.Run(arrange(app, args))
	if flushErr := buffered.Flush(); err == nil {
		err = flushErr
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitOK // the reader has read enough
	}
	report(errOut, err)
	return exitCode(err)
}

// report prints an error. Each line begins with the program's name, except in kubectl's words.
func report(w io.Writer, err error) {
	if err == nil {
		return
	}
	if words, ok := errors.AsType[*kubectl.Error](err); ok {
		_, _ = fmt.Fprintln(w, words) // there is no other place to report an error
		return
	}
	for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
		_, _ = fmt.Fprintf(w, "snapcache: %s\n", line) // there is no other place to report an error
	}
}

func wrongUsage(c *cli.Context, err error, _ bool) error {
	return usagef("%w: see %s --help", err, c.Command.HelpName)
}

func noCommand(c *cli.Context) error {
	if !c.Args().Present() {
		if c.Command.Name == c.App.Name {
			return cli.ShowAppHelp(c)
		}
		return cli.ShowSubcommandHelp(c)
	}
	return usagef("there is no command %q: see %s --help", c.Args().First(), c.Command.HelpName)
}

func atMost(n int, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() > n {
			return usagef("unexpected argument %q: see %s --help", c.Args().Get(n), c.Command.HelpName)
		}
		return action(c)
	}
}
