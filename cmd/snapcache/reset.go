package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
)

const resetDescription = `Gives up a database on purpose, while the agent does not run: it is renamed to
FILE.reset-TIME. The agent lists everything anew at its next start (initial), or begins
with restore.seed where that is set.

   snapcache reset                       asks first
   snapcache reset --yes                 does not
   snapcache reset --delete --yes        keeps no file
   snapcache reset --db old.db

Snapshots stay as they are: to go back to one, see snapcache snapshot restore. Exits with
2 where nobody can be asked and --yes was not given.`

func resetCommand() *cli.Command {
	return &cli.Command{
		Name:        "reset",
		Usage:       "give up a database on purpose",
		UsageText:   "snapcache reset [--db FILE] [--delete] [--yes]",
		Description: resetDescription,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "delete", Usage: "delete the file instead of renaming it"},
			&cli.BoolFlag{Name: "yes", Usage: "do not ask"},
		}, fileFlags("give up")...),
		Action: reset,
	}
}

func reset(c *cli.Context) error {
	path, err := filePath(c)
	if err != nil {
		return err
	}
	if !c.Bool("yes") {
		if err := confirm(c, fmt.Sprintf("Give up the database %s, so that everything is listed anew?", path)); err != nil {
			return err
		}
	}
	aside, err := restore.Reset(path, c.Bool("delete"), time.Now())
	switch {
	case errors.Is(err, store.ErrLocked):
		return fmt.Errorf("the database %s is %w: stop the agent first", path, inUse{err})
	case errors.Is(err, store.ErrNoStore):
		return fmt.Errorf("there is %w at %s: nothing to give up", store.ErrNoStore, path)
	case err != nil:
		return err
	case aside == "":
		return writeStrings(c.App.Writer, path, ": deleted\n")
	}
	return writeStrings(c.App.Writer, path, ": set aside as ", aside, "\n")
}

// errNotConfirmed says that somebody thought better of it.
var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// confirm asks on the terminal. Where there is none it is an error.
func confirm(c *cli.Context, question string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usagef("nobody can be asked here: give --yes")
	}
	if _, err := fmt.Fprintf(c.App.ErrWriter, "%s [y/N] ", question); err != nil {
		return err
	}
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return errNotConfirmed
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}
