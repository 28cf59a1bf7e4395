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

	"github.com/snapcache/snapcache/store/bolt"
)

const (
	// Suffix ends the name of every snapshot.
	Suffix = ".snap"

	nameLayout = "20060102T150405.000Z"

	// What is not finished begins like this.
	tempPrefix = ".writing-"
	copyPrefix = ".copy-"
)

// Dir is a directory of snapshots. Snapshots that are made here are named by their
// time, and only these are rotated; others may lie beside them.
type Dir struct {
	Path string

	// Writer names the program's version, for the manifests.
	Writer string

	step func(name string) // called between the steps of Create, by tests
}

// Snapshot is one file of a directory.
type Snapshot struct {
	Name  string // of the file
	Path  string
	Bytes int64 // of the file

	// Manifest is nil where Err says why it can't be read.
	Manifest *Manifest
	Err      error
}

// Create makes a snapshot of an open database, while others read and write it. The
// errors are those of bolt's Copy, ErrBusy, and of writing; nothing is left behind
// then.
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
	if err := d.sweep(); err != nil {
		return nil, err
	}
	c, err := db.Copy(ctx, d.Path, func(done, total int64) { progress(StepCopy, done, total) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.File.Close() }() // only read from, and gone with it
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

// make creates the directory where there is none, and returns whose the database is:
// what root makes must be the agent's to read and to rotate.
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
	return owner, bolt.GiveTo(d.Path, owner)
}

// put writes a snapshot under a temporary name and renames it when it is on disk.
func (d Dir) put(ctx context.Context, name string, owner fs.FileInfo, m *Manifest, c *bolt.Copy, progress Progress) (*Snapshot, error) {
	tmp, path := filepath.Join(d.Path, tempPrefix+name), filepath.Join(d.Path, name)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	d.at("created")
	err = write(ctx, f, m, c, progress)
	d.at("written")
	var size int64
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil {
			size = info.Size()
			err = f.Sync()
		}
	}
	d.at("synced")
	if err = errors.Join(err, f.Close()); err == nil {
		err = bolt.GiveTo(tmp, owner)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(tmp))
	}
	d.at("renamed")
	return &Snapshot{Name: name, Path: path, Bytes: size, Manifest: m}, bolt.SyncDir(d.Path)
}

// at is where tests let the process end.
func (d Dir) at(step string) {
	if d.step != nil {
		d.step(step)
	}
}

// newName returns the name of a snapshot made now: later than every name that there
// is, also where the clock was set back.
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

// nameTime returns the time in a name that newName gave.
func nameTime(name string) (time.Time, bool) {
	if !ownName.MatchString(name) {
		return time.Time{}, false
	}
	t, err := time.Parse(nameLayout, strings.TrimSuffix(name, Suffix))
	return t, err == nil
}

// names returns the names of all snapshots, in order; none where there is no
// directory.
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

// List returns the snapshots in the directory, oldest first, with their manifests. It
// does not read the rest of them.
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

// Own returns those of the snapshots that were made here, newest first.
func (d Dir) Own() ([]Snapshot, error) {
	all, err := d.List()
	all = slices.DeleteFunc(all, func(s Snapshot) bool { return !ownName.MatchString(s.Name) })
	slices.Reverse(all)
	return all, err
}

// Find returns the path of the snapshot that is meant by a name in the directory, or
// by a path.
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

// Prune removes what was made here, except for the newest keep of them, and all that
// is older than maxAge, but never the newest one that is intact. It removes what a
// crash left, too. It returns what it removed, oldest first. 0 is no limit.
func (d Dir) Prune(ctx context.Context, keep int, maxAge time.Duration, now time.Time) (removed []Snapshot, err error) {
	if _, err := os.Stat(d.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := d.sweep(); err != nil {
		return nil, err
	}
	own, err := d.Own()
	if err != nil {
		return nil, err
	}
	good := false // a newer one, which is kept, is intact
	for i, s := range own {
		t, _ := nameTime(s.Name)
		goes := keep > 0 && i >= keep || maxAge > 0 && now.Sub(t) > maxAge
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
	return removed, bolt.SyncDir(d.Path)
}

// sweep removes what a crash left. The caller has the lock: nobody is writing.
func (d Dir) sweep() error {
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
