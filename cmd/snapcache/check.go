package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const checkDescription = `Reads all of a database and reports what is wrong with it: the structure of the
file, the journal, and the records, counts and indexes of each collection.
It changes nothing.

   snapcache check                        the agent's database, while the agent does not run
   snapcache check --db copy-of-cache.db  only this file
   snapcache check --from 20260304T050607.000Z   a snapshot
   snapcache check -o json | jq .problems

A running agent locks the file: stop it, or check a copy.
Exits with 4 if something is corrupt. An agent that starts on such a file leaves
out the parts it can't read; to fetch everything again, move the file away and
start the agent.`

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "look for corruption in a database",
		UsageText:   "snapcache check [--db FILE] [-o text|json]",
		Description: checkDescription,
		Flags:       append(fileFlags("check"), fromSnapshotFlag(), newOutputFlag("check")),
		Action:      atMost(0, check),
	}
}

func check(c *cli.Context) error {
	path, report, err := checked(c)
	if err != nil {
		return err
	}
	err = output(c, c.App.Writer, report, func() error { return writeCheck(c, report) })
	if err != nil || report.OK() {
		return err
	}
	return withCode(exitCorrupt, fmt.Errorf("%s is corrupt: %s", path, plural(report.ProblemCount, "problem", "problems")))
}

func checked(c *cli.Context) (path string, report *bolt.CheckReport, err error) {
	keys, err := readKeys(c)
	if err != nil {
		return "", nil, err
	}
	if c.String(fromFlag) == "" {
		if path, err = filePath(c); err != nil {
			return path, nil, err
		}
		ctx, stop := interruptible(c.Context)
		defer stop()
		if report, err = bolt.CheckContext(ctx, path, keys, nil); err != nil {
			err = offlineError(path, "check a copy", err)
		}
		return path, report, err
	}
	if c.String(dbFlag) != "" {
		return "", nil, usagef("--from replaces --db: leave out --db")
	}
	dir, _, err := snapshotDir(c)
	if err != nil {
		return "", nil, err
	}
	path = dir.Find(c.String(fromFlag))
	ctx, progress, done := newProgress(c.Context)
	defer done()
	report, _, err = snapshot.Check(ctx, path, keys, progress.step)
	return path, report, restore.WithHint(err)
}

func writeCheck(c *cli.Context, report *bolt.CheckReport) error {
	w := c.App.Writer
	if len(report.Collections) > 0 {
		t := newTable(w, "COLLECTION", ">OBJECTS", ">SIZE", ">RV")
		for _, x := range report.Collections {
			t.row(x.ID, humanCount(x.Objects), humanBytes(x.Bytes), x.RV)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	var lines []string
	for _, n := range report.Notes {
		lines = append(lines, "note: "+n.String())
	}
	for _, p := range report.Problems {
		lines = append(lines, "PROBLEM: "+p.String())
	}
	if more := report.ProblemCount - int64(len(report.Problems)); more > 0 {
		lines = append(lines, fmt.Sprintf("and %s", plural(more, "more problem", "more problems")))
	}
	verdict := "ok"
	if !report.OK() {
		verdict = "CORRUPT"
	}
	file := fmt.Sprintf("%s: %s, %s, %s free, journal of %s", verdict, report.Path,
		humanBytes(report.FileBytes), humanBytes(report.FreeBytes), plural(report.JournalEntries, "entry", "entries"))
	return writeLines(w, append(lines, file)...)
}

func fileFlags(command string) []cli.Flag {
	return []cli.Flag{
		configFileFlag(),
		&cli.StringFlag{Name: dbFlag, Usage: command + " this database `FILE`; default: that of the configuration", TakesFile: true},
		encryptionFlag(),
	}
}

func filePath(c *cli.Context) (string, error) {
	if path := c.String(dbFlag); path != "" {
		return path, nil
	}
	cfg, err := loadConfig(c)
	if err != nil {
		return "", err
	}
	if cfg.Store.Type == config.StoreMemory {
		return "", usagef("the configuration keeps the cache in memory: give a file with --db")
	}
	return cfg.Store.Path, nil
}

// offlineError adds the next step to an error of opening; instead is that if an agent has the file open.
func offlineError(path, instead string, err error) error {
	if errors.Is(err, store.ErrLocked) {
		return &store.Error{Err: inUse{path, err}, Hint: "stop the agent, or " + instead}
	}
	return fileError(path, "", err)
}
