// Package database opens the database of an agent, and the small files beside it: a file that can't be used
// is set aside, and a disk that takes no writes is read or, without a file to read, replaced by memory.
package database

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/systemd"
)

// Database is an open database.
type Database struct {
	store.DB

	Bolt    *bolt.DB     // the file; nil in memory
	File    restore.File // the state of the file at the start
	Foreign bool         // the file was restored from a snapshot, which may be another node's

	// Refused is why the database is in memory, although it should be a file: the disk takes no writes.
	Refused error
}

// Type returns where the database is.
func (d *Database) Type() config.StoreType {
	if d.Bolt == nil {
		return config.StoreMemory
	}
	return config.StoreBolt
}

// InMemory returns an empty database in memory. refused is nil if it is configured so.
func InMemory(refused error) *Database {
	return &Database{DB: memory.New(), File: restore.File{Outcome: restore.Created}, Refused: refused}
}

// Opener opens databases for one agent.
type Opener struct {
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Options func() bolt.Options // of the configuration in force

	// Checking returns what receives the progress of the check of a file after a power cut.
	Checking func() func(collection string, records int64)
}

// Open opens the database at path, and calls use with it. If use finds it corrupt, a snapshot takes its place
// and then, as the last resort, an empty file. After an error nothing is open.
func (o Opener) Open(ctx context.Context, path string, from restore.Sources, use func(*Database) error) error {
	opts := o.Options()
	db, verdict, err := restore.Open(ctx, path, opts, from, o.Clock.Now(), o.Checking())
	if err != nil {
		return err
	}
	// Corruption may show only when a collection is opened for writing. A snapshot may be corrupt too.
	for _, next := range []restore.Sources{from, {}} {
		d, err := o.opened(db, verdict)
		if err != nil {
			return errors.Join(err, db.Close())
		}
		if err = use(d); err == nil {
			return nil
		}
		if err = errors.Join(err, db.Close()); !errors.As(err, new(*store.CorruptionError)) {
			return err
		}
		if db, verdict, err = restore.Replace(ctx, path, opts, err, next, o.Clock.Now()); err != nil {
			return err
		}
	}
	d, err := o.opened(db, verdict)
	if err == nil {
		err = use(d)
	}
	if err != nil {
		err = errors.Join(err, db.Close())
	}
	return err
}

// opened logs the verdict on a file that was opened.
func (o Opener) opened(db *bolt.DB, verdict restore.File) (*Database, error) {
	for _, err := range verdict.Skipped {
		o.Log.Warn("a snapshot could not be used", "error", err)
	}
	switch {
	case verdict.Outcome == restore.Quarantined && verdict.From != nil:
		o.Log.Error("the database could not be used and was set aside; a snapshot took its place",
			"reason", verdict.Reason, "cause", verdict.Cause, "moved", verdict.MovedTo, "snapshot", verdict.From.Name, "of", verdict.From.Created)
	case verdict.Outcome == restore.Quarantined:
		o.Log.Error("the database could not be used and was set aside; starting empty",
			"reason", verdict.Reason, "cause", verdict.Cause, "moved", verdict.MovedTo)
	default:
		o.Log.Info("database "+verdict.String(), "path", verdict.Path)
	}
	origin, err := db.Origin()
	if err != nil {
		return nil, err
	}
	if err := db.JournalCorruption(); err != nil {
		o.Log.Error("the journal is corrupt; the changes after the damage were discarded and will be watched again", "error", err)
	}
	return &Database{DB: db, Bolt: db, File: verdict, Foreign: origin != ""}, nil
}

// OpenSmall opens a store beside the database, with its key, unless ctx ends before. A file that can't be
// used is set aside. If the disk takes no writes, and there is no file to read, the store is in memory until
// the next start.
func (o Opener) OpenSmall(ctx context.Context, path string) (store.DB, error) {
	all := o.Options()
	opts := bolt.Options{Clock: all.Clock, Writer: all.Writer, Keys: all.Keys, OrReadOnly: true, Logger: o.Log.With("path", path)}
	db, verdict, err := restore.Open(ctx, path, opts, restore.Sources{}, o.Clock.Now(), nil)
	if files.RefusesWrites(err) {
		o.Log.Error("the disk takes no writes; a file is kept in memory until the next start", "path", path, "error", WithDropIn(err, path))
		return memory.New(), nil
	}
	if err != nil {
		return nil, err
	}
	if verdict.Outcome == restore.Quarantined {
		o.Log.Error("a file could not be used and was set aside", "path", path, "reason", verdict.Reason, "cause", verdict.Cause, "moved", verdict.MovedTo)
	}
	return db, nil
}

// WithDropIn adds the next step to the error of a path that the service's unit makes read-only.
func WithDropIn(err error, path string) error {
	if hint := systemd.ReadOnlyHint(err, filepath.Dir(path)); hint != "" {
		return &store.Error{Err: err, Hint: hint}
	}
	return err
}

// Copy writes the collections of a database that another one lacks to that one. A collection that the other
// has is left: it continues from where it is.
func Copy(to, from store.DB) error {
	known := map[string]bool{}
	there, err := to.Collections()
	for _, info := range there {
		known[info.ID] = true
	}
	here, errHere := from.Collections()
	if err := errors.Join(err, errHere); err != nil {
		return err
	}
	for _, info := range here {
		if known[info.ID] {
			continue
		}
		if err := copyCollection(to, from, info.ID); err != nil {
			return errors.Join(err, to.Drop(info.ID)) // a part of it is not there either
		}
	}
	return to.Flush()
}

// copied is how many objects are copied together.
const copied = 500

func copyCollection(to, from store.DB, id string) (err error) {
	v, err := from.View(id)
	if err != nil {
		return err
	}
	defer v.Close()
	if !v.State().Synced {
		return nil
	}
	c, err := to.Open(v.Info())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	description, err := v.Description()
	if err != nil {
		return err
	}
	if err := c.Describe(description); err != nil {
		return err
	}
	r, err := c.Replace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Abort()) }()
	changes := make([]store.Change, 0, copied)
	for o, err := range v.Objects("", "") {
		if err != nil {
			return err
		}
		if changes = append(changes, store.Change{Key: o.Key(), Object: o}); len(changes) < copied {
			continue
		}
		if err := r.Apply(changes); err != nil {
			return err
		}
		changes = changes[:0]
	}
	if err := r.Apply(changes); err != nil {
		return err
	}
	return r.Commit(v.State().Checkpoint)
}
