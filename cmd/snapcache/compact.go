package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const compactDescription = `Rewrites a database without its free space. The file never shrinks by itself:
the space of deleted objects is reused for new ones.

   snapcache compact                        the agent's database, while the agent does not run
   snapcache compact --db copy-of-cache.db  only this file
   snapcache compact --encryption-key-file new.key --config agent.yaml   under a new key

If the file is encrypted with another key, and the configuration names that one
as old, it is rewritten under the new key; without any key, unencrypted.
The new file is made beside the old one, which takes disk space for both, and
replaces it when it is complete and checked: a crash or a full disk leaves the old
one unchanged. A running agent locks the file: stop it first. A corrupt file is not
changed (exit code 4): see snapcache check.`

func compactCommand() *cli.Command {
	return &cli.Command{
		Name:        "compact",
		Usage:       "make a database as small as possible",
		UsageText:   "snapcache compact [--db FILE]",
		Description: compactDescription,
		Flags:       fileFlags("compact"),
		Action:      atMost(0, compact),
	}
}

func compact(c *cli.Context) error {
	path, err := filePath(c)
	if err != nil {
		return err
	}
	keys, err := readKeys(c)
	if err != nil {
		return err
	}
	before, after, err := bolt.Compact(path, bolt.Options{Keys: keys})
	switch {
	case errors.Is(err, bolt.ErrNoRoom):
		return &store.Error{Err: err, Hint: "make room, or copy the database to a larger disk and compact it there"}
	case errors.As(err, new(*store.CorruptionError)):
		return &store.Error{Err: err, Hint: "see snapcache check"}
	case err != nil:
		return offlineError(path, "compact a copy", err)
	}
	return writeStrings(c.App.Writer, fmt.Sprintf("%s: %s before, %s after\n", path, humanBytes(before), humanBytes(after)))
}
