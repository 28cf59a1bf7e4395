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

const resetDescription = `Discards a database, while the agent does not run: it is renamed to FILE.reset-TIME.
At its next start the agent lists everything again (initial), or starts from
restore.seed if that is set.

   snapcache reset                       asks for confirmation
   snapcache reset --yes                 does not ask
   snapcache reset --delete --yes        deletes the file
   snapcache reset --db old.db

Snapshots are not affected: to restore one, see snapcache snapshot restore. Exits with
2 if there is no terminal for the question and --yes was not given.`

func resetCommand() *cli.Command {
	return &cli.Command{
		Name:        "reset",
		Usage:       "discard a database",
		UsageText:   "snapcache reset [--db FILE] [--delete] [--yes]",
		Description: resetDescription,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "delete", Usage: "delete the file instead of renaming it"},
			&cli.BoolFlag{Name: "yes", Usage: "do not ask"},
		}, fileFlags("discard")...),
		Action: atMost(0, reset),
	}
}

func reset(c *cli.Context) error {
	path, err := filePath(c)
	if err != nil {
		return err
	}
	if !c.Bool("yes") {
		if err := confirm(c, fmt.Sprintf("Discard the database %s, so that everything is listed again?", path)); err != nil {
			return err
		}
	}
	aside, err := restore.Reset(path, c.Bool("delete"), time.Now())
	switch {
	case errors.Is(err, store.ErrLocked):
		return &store.Error{Err: inUse{path, err}, Hint: "stop the agent first"}
	case errors.Is(err, store.ErrNoStore):
		return fmt.Errorf("there is %w at %s: nothing to discard", store.ErrNoStore, path)
	case err != nil:
		return err
	case aside == "":
		return writeStrings(c.App.Writer, path, ": deleted\n")
	}
	return writeStrings(c.App.Writer, path, ": set aside as ", aside, "\n")
}

var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// confirm asks on the terminal. Without a terminal it returns an error.
func confirm(c *cli.Context, question string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usagef("there is no terminal for the question: give --yes")
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
