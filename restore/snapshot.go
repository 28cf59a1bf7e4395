package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const newSuffix = ".restore"

// Sources are the snapshots that a database can be restored from. The zero value has none.
type Sources struct {
	// Seed is a snapshot that a node without a database starts from.
	Seed string

	// Snapshots are the node's own. The newest good one takes the place of a database that can't be
	// used.
	Snapshots snapshot.Dir
}

// From is the snapshot that a database was restored from.
type From struct {
	Name    string
	Created time.Time
}

func (f From) String() string {
	return fmt.Sprintf("from snapshot %s, of %s", f.Name, f.Created.UTC().Format(time.RFC3339))
}

// FromSnapshot puts the database of a snapshot at path, and sets an existing file aside. It returns
// store.ErrLocked if an agent has the file open, and otherwise the errors of [snapshot.Unpack]. On
// an error path is unchanged.
//
// A restored database may resume its watches. A snapshot is a complete state: objects and
// checkpoint were written by one transaction and copied by one, so a watch from the checkpoint
// sends exactly the missing changes, as to an agent that was offline for as long. The guards are
// the same as of every resume, but one is stricter: the identity of the cluster must be equal
// (bolt.DB.Origin).
func FromSnapshot(ctx context.Context, name, path string, opts bolt.Options, now time.Time, progress snapshot.Progress) (verdict File, err error) {
	verdict = File{Path: path, Outcome: Created}
	path, info, err := statTarget(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return verdict, fmt.Errorf("create database directory: %w", err)
		}
		if info, err = os.Stat(filepath.Dir(path)); err != nil {
			return verdict, err
		}
	case err != nil:
		return verdict, fmt.Errorf("open database: %w", err)
	default:
		verdict.Outcome = Replaced
		unlock, lockErr := bolt.Lock(path)
		if lockErr != nil {
			return verdict, lockErr
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	tmp, from, err := unpack(ctx, name, path, opts, progress)
	if err != nil {
		return verdict, err
	}
	verdict.From = from
	if err := files.ChownLike(tmp, info); err != nil {
		return verdict, errors.Join(fmt.Errorf("give the database to the agent's user: %w", err), os.Remove(tmp))
	}
	if verdict.Outcome == Replaced {
		verdict.MovedTo = asideName(path, string(Replaced), now)
	}
	return verdict, install(tmp, path, verdict.MovedTo)
}

// unpack makes a checked database from a snapshot, beside the one at path, and returns its name.
func unpack(ctx context.Context, name, path string, opts bolt.Options, progress snapshot.Progress) (string, *From, error) {
	tmp := path + newSuffix
	if err := os.RemoveAll(tmp); err != nil { // left behind by a crash
		return "", nil, fmt.Errorf("restore: %w", err)
	}
	from := &From{Name: filepath.Base(name)}
	m, err := snapshot.UnpackFile(ctx, name, tmp, opts.MaxBytes, progress)
	if err == nil {
		from.Created = m.Created
		err = snapshot.Named(adopt(ctx, tmp, name, from, opts), tmp, name)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(tmp))
	}
	return tmp, from, nil
}

// adopt checks an unpacked database, writes its origin into it, and syncs it to disk.
func adopt(ctx context.Context, tmp, name string, from *From, opts bolt.Options) error {
	report, err := bolt.CheckContext(ctx, tmp, opts.Keys, nil)
	if err == nil && !report.Usable() {
		err = &store.CorruptionError{Path: name, Reason: report.Problems[0].String()}
	}
	if err != nil {
		return err
	}
	opts.ReadOnly, opts.MaxBytes = false, max(opts.MaxBytes, report.FileBytes+spareBytes)
	db, err := openReadable(tmp, opts)
	if err != nil {
		return err
	}
	if err := errors.Join(db.SetOrigin(from.String()), db.Close()); err != nil {
		return err
	}
	f, err := os.Open(tmp)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// spareBytes is the space added to the quota for writing the origin.
const spareBytes = 1 << 20

// install puts a new file in the place of the one at path, which is renamed to aside; aside is
// empty if there is no old file. After any error or crash, the complete old file is still at path
// or aside.
func install(tmp, path, aside string) error {
	if aside != "" {
		// With a second name for the old file, a database exists at every moment.
		if err := os.Link(path, aside); err != nil {
			// Not every file system has links.
			if err := os.Rename(path, aside); err != nil {
				return errors.Join(fmt.Errorf("set the old database aside: %w", err), os.Remove(tmp))
			}
		}
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(fmt.Errorf("restore: %w", err), os.Remove(tmp))
	}
	return files.SyncDir(filepath.Dir(path))
}

// newest makes a checked database from the newest good snapshot of the node, beside the one at
// path. If there is no good one, tmp is empty. skipped has the errors of the snapshots that could
// not be used.
func (s Sources) newest(ctx context.Context, path string, opts bolt.Options) (tmp string, from *From, skipped []error) {
	if s.Snapshots.Path == "" {
		return "", nil, nil
	}
	own, err := s.Snapshots.Own()
	if err != nil {
		return "", nil, []error{err}
	}
	for _, x := range own {
		if tmp, from, err = unpack(ctx, x.Path, path, opts, nil); err == nil {
			return tmp, from, skipped
		}
		skipped = append(skipped, err)
		if !unfit(err) {
			break // an older snapshot would fail too
		}
	}
	return "", nil, skipped
}

func unfit(err error) bool {
	return errors.Is(err, snapshot.ErrForeign) || errors.Is(err, snapshot.ErrQuota) || errors.Is(err, store.ErrNewerFormat) || errors.Is(err, snapshot.ErrNoSnapshot) || errors.Is(err, store.ErrKey) || unusable(err) != ""
}
