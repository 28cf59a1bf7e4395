package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const snapshotDescription = `Copies of the database in files of their own: compressed, with a manifest and
checksums, made while the agent runs.

   snapcache snapshot create                 copy the current database
   snapcache snapshot list
   snapcache snapshot verify                 verify the checksums
   snapcache snapshot restore NAME           replace the database by one
   snapcache snapshot prune --keep 3
   snapcache dump pods --from NAME           read one

A snapshot contains all that the database contains, including Secrets if they are
cached: protect it like the database. To start another node from one, copy the file
there and set it as restore.seed in the configuration.`

func snapshotCommand() *cli.Command {
	return &cli.Command{
		Name:        "snapshot",
		Usage:       "make, list and restore copies of the database",
		UsageText:   "snapcache snapshot create|list|verify|restore|prune",
		Description: snapshotDescription,
		Subcommands: []*cli.Command{
			{
				Name:      "create",
				Usage:     "make a snapshot",
				UsageText: "snapcache snapshot create [--db FILE] [--dir DIR]",
				Description: `Makes the running agent create a snapshot or, without one, creates it from the database.
Old ones are removed as configured. Ctrl-C aborts.

   snapcache snapshot create
   snapcache snapshot create --db copy-of-cache.db --dir /media/usb

Exits with 4 if the database is corrupt: no snapshot is made then.`,
				Flags:  append([]cli.Flag{snapshotDirFlag()}, lookupFlags()...),
				Action: atMost(0, withSnapshots(createSnapshot)),
			},
			{
				Name:      "list",
				Usage:     "list the snapshots",
				UsageText: "snapcache snapshot list [--dir DIR] [-o table|json]",
				Description: `Lists the snapshots with the content of their manifests, oldest first. The rest of the
files is not read: see verify. The age of a snapshot from the future is unknown.

   snapcache snapshot list
   snapcache snapshot list -o json | jq '.[].manifest.collections'

Exits with 4 if a manifest is corrupt.`,
				Flags:  []cli.Flag{newOutputFlag("list"), snapshotDirFlag(), configFileFlag()},
				Action: atMost(0, withSnapshots(listSnapshots)),
			},
			{
				Name:      "verify",
				Usage:     "read snapshots and verify their checksums",
				UsageText: "snapcache snapshot verify [SNAPSHOT...] [--dir DIR]",
				Description: `Reads all of a snapshot, verifies its checksums and checks the database in it. Without
a name it verifies all snapshots.

   snapcache snapshot verify
   snapcache snapshot verify /media/usb/seed.snap

Exits with 4 if one is corrupt.`,
				Flags:  []cli.Flag{snapshotDirFlag(), configFileFlag(), encryptionFlag()},
				Action: withSnapshots(verifySnapshots),
			},
			{
				Name:      "restore",
				Usage:     "replace the database by a snapshot",
				UsageText: "snapcache snapshot restore SNAPSHOT [--db FILE] [--dir DIR]",
				Description: `Replaces the database by the content of a snapshot, while the agent does not run.
The old database stays beside it under another name.

   snapcache snapshot restore 20260304T050607.000Z
   snapcache snapshot restore /media/usb/seed.snap --db /var/lib/snapcache/cache.db

An agent that starts on it resumes from there if the cluster is the same and the
server still has the history; otherwise it lists.`,
				Flags:  append([]cli.Flag{snapshotDirFlag()}, fileFlags("restore into")...),
				Action: atMost(1, withSnapshots(restoreSnapshot)),
			},
			{
				Name:      "prune",
				Usage:     "remove old snapshots",
				UsageText: "snapcache snapshot prune [--keep N] [--max-age DURATION] [--dir DIR]",
				Description: `Removes old snapshots and what a crash left behind. The newest good one always stays,
and so do files that were not made here.

   snapcache snapshot prune                as configured
   snapcache snapshot prune --keep 3 --max-age 168h`,
				Flags: []cli.Flag{
					&cli.IntFlag{Name: "keep", Usage: "how many to keep; default: as configured"},
					&cli.DurationFlag{Name: "max-age", Usage: "their maximum age; default: as configured"},
					snapshotDirFlag(), configFileFlag(),
				},
				Action: atMost(0, withSnapshots(pruneSnapshots)),
			},
		},
	}
}

func snapshotDirFlag() cli.Flag {
	return &cli.StringFlag{Name: dirFlag, Usage: "the `DIR` of the snapshots; default: that of the configuration", TakesFile: true}
}

func withSnapshots(action func(*cli.Context, snapshot.Dir, *config.AgentConfiguration) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		dir, cfg, err := snapshotDir(c)
		if err != nil {
			return err
		}
		return action(c, dir, cfg)
	}
}

func snapshotDir(c *cli.Context) (snapshot.Dir, *config.AgentConfiguration, error) {
	cfg, err := loadConfig(c)
	if err != nil {
		return snapshot.Dir{}, nil, err
	}
	d := snapshot.Dir{Path: cfg.Snapshots.Dir, Writer: "snapcache " + programVersion()}
	if path := c.String(dirFlag); path != "" {
		d.Path = path
	}
	if d.Path == "" {
		return d, nil, usagef("the directory of snapshots is not known: give --dir or --config")
	}
	return d, cfg, nil
}

func createSnapshot(c *cli.Context, dir snapshot.Dir, cfg *config.AgentConfiguration) error {
	look, err := newLookup(c)
	if err != nil {
		return err
	}
	ctx, progress, done := newProgress(c.Context)
	defer done()
	var made *localapi.Snapshot
	err = retryLocked(ctx, func() (err error) {
		made, err = makeSnapshot(ctx, look, dir, c.IsSet(dirFlag), cfg, progress)
		return err
	})
	if err != nil {
		return restore.WithHint(err)
	}
	return writeStrings(c.App.Writer, fmt.Sprintf("%s: %s, %s\n", made.Path, plural(made.Objects, "object", "objects"), humanBytes(made.Bytes)))
}

// makeSnapshot requests a snapshot from the agent. If there is no agent, or the options name
// another file or directory, it opens the file and makes the snapshot itself.
func makeSnapshot(ctx context.Context, look *lookup, dir snapshot.Dir, elsewhere bool, cfg *config.AgentConfiguration, progress *progressLine) (*localapi.Snapshot, error) {
	next := "leave out --db and --dir, and it makes the snapshot"
	if !look.onlyFile && !elsewhere {
		next = "give its --socket, and it makes the snapshot"
		made, err := localapi.NewClient(look.socket).CreateSnapshot(ctx, func(step string, done, total int64) {
			progress.step(snapshot.Step(step), done, total)
		})
		if !errors.Is(err, localapi.ErrNoAgent) || look.db == "" {
			return made, err
		}
	}
	if look.onlyFile && !elsewhere {
		return nil, usagef("--db needs --dir, the directory for its snapshots")
	}
	keys, err := look.keys()
	if err != nil {
		return nil, err
	}
	db, err := bolt.Open(look.db, bolt.Options{ReadOnly: true, Keys: keys})
	if err != nil {
		return nil, offlineError(look.db, next, err)
	}
	made, err := dir.Create(ctx, db, time.Now(), progress.step)
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	if !elsewhere {
		_, err = dir.Prune(ctx, cfg.Snapshots.Keep, cfg.Snapshots.MaxAge.Duration, cfg.Snapshots.Interval.Duration, time.Now())
	}
	return &localapi.Snapshot{Name: made.Name, Path: made.Path, Bytes: made.Bytes, Objects: made.Manifest.Objects(), Created: made.Manifest.Created}, err
}

type listedSnapshot struct {
	Name     string             `json:"name"`
	Path     string             `json:"path"`
	Bytes    int64              `json:"bytes"` // of the file
	Manifest *snapshot.Manifest `json:"manifest,omitempty"`
	Error    string             `json:"error,omitempty"`
}

func listSnapshots(c *cli.Context, dir snapshot.Dir, _ *config.AgentConfiguration) error {
	all, err := dir.List()
	if err != nil {
		return err
	}
	var bad []error
	answer := []listedSnapshot{}
	t := newTable(c.App.Writer, "NAME", ">AGE", ">SIZE", ">OBJECTS", ">COLLECTIONS", "CLUSTER")
	for _, s := range all {
		x := listedSnapshot{Name: s.Name, Path: s.Path, Bytes: s.Bytes, Manifest: s.Manifest}
		if s.Err != nil {
			bad = append(bad, restore.WithHint(s.Err))
			x.Error = s.Err.Error()
			t.row(s.Name, "", humanBytes(s.Bytes), "", "", "UNREADABLE")
		} else {
			m := s.Manifest
			t.row(s.Name, ageOf(m), humanBytes(s.Bytes), humanCount(m.Objects()), humanCount(int64(len(m.Collections))), clusters(m))
		}
		answer = append(answer, x)
	}
	switch {
	case c.String(outputFlag) == "json":
		err = writeJSON(c.App.Writer, answer)
	case len(all) == 0:
		err = writeStrings(c.App.Writer, "no snapshots in ", dir.Path, "\n")
	default:
		err = t.flush()
	}
	return errors.Join(append(bad, err)...)
}

// ageOf returns the age of a snapshot, which is not known if the snapshot is from the future: its clock
// was wrong, or this one is.
func ageOf(m *snapshot.Manifest) string {
	age := time.Since(m.Created)
	if age < 0 || m.Created.IsZero() {
		return "unknown"
	}
	return localapi.Age(age.Seconds())
}

// clusters are more than one while a node moves to another cluster.
func clusters(m *snapshot.Manifest) string {
	names := sets.New[string]()
	for _, x := range m.Collections {
		names.Insert(x.Cluster)
	}
	return strings.Join(sets.List(names.Delete("")), ",")
}

func verifySnapshots(c *cli.Context, dir snapshot.Dir, _ *config.AgentConfiguration) error {
	keys, err := readKeys(c)
	if err != nil {
		return err
	}
	paths, err := snapshotPaths(dir, c.Args().Slice())
	if err != nil {
		return err
	}
	ctx, progress, done := newProgress(c.Context)
	defer done()
	var bad []error
	for _, path := range paths {
		report, m, err := snapshot.Check(ctx, path, keys, progress.step)
		if err == nil && !report.OK() {
			err = &store.CorruptionError{Path: path, Reason: report.Problems[0].String()}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			bad = append(bad, restore.WithHint(err))
			continue
		}
		line := fmt.Sprintf("ok: %s: %s in %s, %s, of %s\n", path, plural(m.Objects(), "object", "objects"),
			plural(int64(len(m.Collections)), "collection", "collections"), humanBytes(m.Database.Bytes), m.Created.Format(time.RFC3339))
		if err := writeStrings(c.App.Writer, line); err != nil {
			return err
		}
	}
	return errors.Join(bad...)
}

func snapshotPaths(dir snapshot.Dir, names []string) (paths []string, err error) {
	for _, name := range names {
		paths = append(paths, dir.Find(name))
	}
	if len(paths) > 0 {
		return paths, nil
	}
	all, err := dir.List()
	for _, s := range all {
		paths = append(paths, s.Path)
	}
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("there are %ws in %s", snapshot.ErrNoSnapshot, dir.Path)
	}
	return paths, err
}

func restoreSnapshot(c *cli.Context, dir snapshot.Dir, cfg *config.AgentConfiguration) error {
	name := c.Args().First()
	if name == "" {
		return usagef("SNAPSHOT is missing: snapcache snapshot list shows the names")
	}
	path, err := filePath(c)
	if err != nil {
		return err
	}
	keys, err := readKeys(c)
	if err != nil {
		return err
	}
	ctx, progress, done := newProgress(c.Context)
	defer done()
	verdict, err := restore.FromSnapshot(ctx, dir.Find(name), path, bolt.Options{MaxBytes: cfg.Store.MaxSize.Value(), Keys: keys}, time.Now(), progress.step)
	if errors.Is(err, store.ErrLocked) {
		return &store.Error{Err: inUse{path, err}, Hint: "stop the agent, or restore into another file with --db"}
	}
	if err != nil {
		return restore.WithHint(err)
	}
	return writeStrings(c.App.Writer, path, ": ", verdict.String(), "\n")
}

func pruneSnapshots(c *cli.Context, dir snapshot.Dir, cfg *config.AgentConfiguration) error {
	keep, maxAge := cfg.Snapshots.Keep, cfg.Snapshots.MaxAge.Duration
	if c.IsSet("keep") {
		keep = c.Int("keep")
	}
	if c.IsSet("max-age") {
		maxAge = c.Duration("max-age")
	}
	if keep < 1 || maxAge <= 0 {
		return usagef("--keep has to be 1 or more, and --max-age more than 0")
	}
	ctx, stop := interruptible(c.Context)
	defer stop()
	removed, err := dir.Prune(ctx, keep, maxAge, 0, time.Now()) // a person asks, who has a clock
	for _, s := range removed {
		if err := writeStrings(c.App.Writer, "removed ", s.Path, "\n"); err != nil {
			return err
		}
	}
	return err
}
