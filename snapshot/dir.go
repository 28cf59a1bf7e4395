package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/store/bolt"
)

const (
	// Suffix ends the name of every snapshot.
	Suffix = ".snap"

	nameLayout = "20060102T150405.000Z"

	// The names of unfinished files begin with these.
	tempPrefix = ".writing-"
	copyPrefix = ".copy-"
)

// Dir is a directory of snapshots. Snapshots made by [Dir.Create] are named by their time, and only
// these are rotated. Others may be in the same directory.
type Dir struct {
	Path string

	// Writer is the program's version, for the manifests.
	Writer string

	// step is called between the steps of Create; nil in production. A crash there must leave no
	// snapshot or a complete one, and a test can't reach all of these places from outside.
	step func(name string)
}

// Snapshot is one file of a directory.
type Snapshot struct {
	Name  string // of the file
	Path  string
	Bytes int64 // of the file

	// Manifest is nil if it can't be read; then Err is the reason.
	Manifest *Manifest
	Err      error
}

// Create makes a snapshot of an open database, which stays readable and writable meanwhile. It fails
// with the errors of [bolt.DB.Backup], with [ErrBusy], and with write errors. On an error no file is left behind.
func (d Dir) Create(ctx context.Context, db *bolt.DB, now time.Time, progress Progress) (s *Snapshot, err error) {
	if progress == nil {
		progress = func(Step, int64, int64) {}
	}
	owner, err := d.make(db.Stats().Path)
	if err != nil {
		return nil, fmt.Errorf("create snapshot directory: %w", err)
	}
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	c, err := db.Backup(ctx, d.Path, func(done, total int64) { progress(StepCopy, done, total) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.File.Close() }() // opened for reading, and already unlinked
	d.at("copied")
	m, err := describe(ctx, c, d.Writer, now)
	if err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	name, err := d.newName(now)
	if err != nil {
		return nil, err
	}
	if s, err = d.put(ctx, name, owner, m, c, progress); err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	return s, nil
}

// make creates the directory if it does not exist, and returns the file info of the database: a
// directory made by root must belong to the agent's user, which reads and rotates snapshots.
func (d Dir) make(database string) (owner fs.FileInfo, err error) {
	if owner, err = os.Stat(database); err != nil {
		return nil, err
	}
	if _, err := os.Stat(d.Path); !errors.Is(err, fs.ErrNotExist) {
		return owner, err
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return nil, err
	}
	return owner, files.ChownLike(d.Path, owner)
}

func (d Dir) put(ctx context.Context, name string, owner fs.FileInfo, m *Manifest, c *bolt.Backup, progress Progress) (*Snapshot, error) {
	tmp, path := filepath.Join(d.Path, tempPrefix+name), filepath.Join(d.Path, name)
	var info fs.FileInfo
	err := files.Create(tmp, func(f *os.File) (err error) {
		d.at("created")
		if err = write(ctx, f, m, c, progress); err == nil {
			info, err = f.Stat()
		}
		d.at("written")
		return errors.Join(err, files.ChownLike(tmp, owner))
	})
	if err != nil {
		return nil, err
	}
	d.at("synced")
	if err := files.Replace(tmp, path); err != nil {
		return nil, err
	}
	d.at("renamed")
	return &Snapshot{Name: name, Path: path, Bytes: info.Size(), Manifest: m}, files.SyncDir(d.Path)
}

// at calls the hook, in which a test can end the process.
func (d Dir) at(step string) {
	if d.step != nil {
		d.step(step)
	}
}

// newName returns the name of a snapshot made now. It sorts after every existing name, even if the
// clock was set back.
func (d Dir) newName(now time.Time) (string, error) {
	names, err := d.names()
	if err != nil {
		return "", err
	}
	at := now.UTC().Truncate(time.Millisecond)
	for _, name := range names {
		if t, ok := nameTime(name); ok && !at.After(t) {
			at = t.Add(time.Millisecond)
		}
	}
	return at.Format(nameLayout) + Suffix, nil
}

var ownName = regexp.MustCompile(`^\d{8}T\d{6}\.\d{3}Z\.snap$`)

func nameTime(name string) (time.Time, bool) {
	if !ownName.MatchString(name) {
		return time.Time{}, false
	}
	t, err := time.Parse(nameLayout, strings.TrimSuffix(name, Suffix))
	return t, err == nil
}

// names returns the names of all snapshots, in order. If the directory does not exist, there are
// none.
func (d Dir) names() ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var names []string
	for _, e := range entries { // ReadDir sorts
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), Suffix) && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// List returns the snapshots in the directory, oldest first, with their manifests. It reads only
// the manifests.
func (d Dir) List() ([]Snapshot, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	list := make([]Snapshot, 0, len(names))
	for _, name := range names {
		s := Snapshot{Name: name, Path: filepath.Join(d.Path, name)}
		s.Manifest, s.Bytes, s.Err = ReadManifest(s.Path)
		if errors.Is(s.Err, ErrNoSnapshot) {
			continue // removed in between
		}
		list = append(list, s)
	}
	return list, nil
}

// Own returns the snapshots that were made by [Dir.Create], newest first.
func (d Dir) Own() ([]Snapshot, error) {
	all, err := d.List()
	all = slices.DeleteFunc(all, func(s Snapshot) bool { return !ownName.MatchString(s.Name) })
	slices.Reverse(all)
	return all, err
}

// Find returns the path of a snapshot, given its name in the directory or its path.
func (d Dir) Find(name string) string {
	if filepath.Base(name) != name {
		return name
	}
	if _, err := os.Lstat(name); err == nil {
		return name
	}
	for _, candidate := range []string{name, name + Suffix} {
		path := filepath.Join(d.Path, candidate)
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return name
}

// Prune removes snapshots made by [Dir.Create]: all but the newest keep, and all older than maxAge,
// but never the newest intact one. It also removes the unfinished files of a crash. It
// returns the removed snapshots, oldest first. 0 means no limit.
//
// The clock may be wrong, or may have been when a snapshot was made. So if snapshots are made at an
// interval, the time between two of them counts as one interval at most, and a date that lies before
// the one of an older snapshot as none. The interval is 0 if dates count as they are.
func (d Dir) Prune(ctx context.Context, keep int, maxAge, interval time.Duration, now time.Time) (removed []Snapshot, err error) {
	if _, err := os.Stat(d.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	own, err := d.Own()
	if err != nil {
		return nil, err
	}
	good := false // a newer snapshot is intact, and kept
	age, newer := time.Duration(0), now
	for i, s := range own {
		t := s.made()
		passed := max(0, newer.Sub(t))
		if interval > 0 {
			passed = min(passed, interval)
		}
		age, newer = age+passed, t
		// Of the intervals one may be too long: the one before a start with a wrong clock.
		goes := keep > 0 && i >= keep || maxAge > 0 && age-interval > maxAge
		if !good && s.Err == nil {
			if err := intact(ctx, s.Path); err == nil {
				good = true
				continue
			} else if ctx.Err() != nil {
				return removed, ctx.Err()
			}
		}
		if !goes {
			continue
		}
		if err := os.Remove(s.Path); err != nil {
			return removed, fmt.Errorf("remove snapshot: %w", err)
		}
		removed = append(removed, s)
	}
	slices.Reverse(removed)
	if len(removed) == 0 {
		return nil, nil
	}
	return removed, files.SyncDir(d.Path)
}

// made returns when a snapshot was made, by the clock of then: the time in its name, which is later than
// in the names of all older snapshots, equals its manifest's unless the clock was behind.
func (s Snapshot) made() time.Time {
	if s.Manifest != nil {
		return s.Manifest.Created
	}
	t, _ := nameTime(s.Name)
	return t
}

// sweepLocked removes the unfinished files of a crash. The directory is locked, so no snapshot is
// being written.
func (d Dir) sweepLocked() error {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) || strings.HasPrefix(e.Name(), copyPrefix) {
			if err := os.RemoveAll(filepath.Join(d.Path, e.Name())); err != nil {
				return fmt.Errorf("remove an unfinished snapshot: %w", err)
			}
		}
	}
	return nil
}

// lock takes an advisory lock that keeps other processes from making and removing snapshots in the
// directory, until unlock is called or the process ends, and removes the unfinished files of a crash.
func (d Dir) lock() (unlock func() error, err error) {
	f, err := os.Open(d.Path)
	if err != nil {
		return nil, fmt.Errorf("lock snapshot directory: %w", err)
	}
	busy, err := tryLock(f)
	if busy {
		err = fmt.Errorf("%w in %s", ErrBusy, d.Path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := d.sweepLocked(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
