package restore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// Outcome is what became of a file.
type Outcome string

const (
	// Opened: the file is in use as it was.
	Opened Outcome = "opened"
	// Created: there was none.
	Created Outcome = "created"
	// Quarantined: the file was set aside and another took its place.
	Quarantined Outcome = "quarantined"
	// Replaced: a snapshot took its place because somebody wanted that.
	Replaced Outcome = "replaced"
)

// File is the verdict on a database file.
type File struct {
	Path    string
	Outcome Outcome

	// Reason is why the file was set aside, one word: "foreign", "damaged",
	// "newer-format". Cause is the whole story.
	Reason string
	Cause  error

	// Ending is how the file was left, and Checked how many records were looked at
	// because of that: all of them after a power cut, none otherwise. Damaged are
	// those of them that are damaged by themselves, which is no reason to set the
	// file aside: they are not served.
	Ending           bolt.Ending
	Checked, Damaged int64

	// MovedTo is the name under which it was set aside.
	MovedTo string

	// From is the snapshot that took its place; nil where an empty file did, and where
	// the file is in use as it was.
	From *From

	// Skipped are why snapshots that might have taken its place could not.
	Skipped []error
}

// String is the verdict in one line.
func (f File) String() string {
	text := f.outcome()
	if f.From != nil {
		text += "; " + f.From.String()
	}
	return text
}

func (f File) outcome() string {
	switch f.Outcome {
	case Quarantined:
		return fmt.Sprintf("quarantined: %s (%v); the old file is %s", f.Reason, f.Cause, f.MovedTo)
	case Replaced:
		return "replaced; the old file is " + f.MovedTo
	}
	if f.Checked > 0 && f.Damaged > 0 {
		return fmt.Sprintf("%s after a power cut: of %d records %d are damaged", f.Outcome, f.Checked, f.Damaged)
	}
	if f.Checked > 0 {
		return fmt.Sprintf("%s after a power cut: %d records are sound", f.Outcome, f.Checked)
	}
	return string(f.Outcome)
}

// Open opens the database at path for writing. A file that is damaged, foreign
// or of a newer format is set aside, and the newest good snapshot takes its place
// where there is one. Where there is no file, the seed does. What remains an error
// is what another try or an operator can mend: store.ErrLocked, permissions, a disk
// that is full.
//
// A file that was closed, or whose process was killed since the machine was started,
// is opened at once, whatever its size. After a power cut, and where the file comes
// from elsewhere, all of it is read and checked before anything trusts it, and
// progress, unless it is nil, is told how far that is. See [bolt.Check].
//
// So each file is opened twice, first for reading: opening one for writing follows its list
// of free pages, and where a power cut left that damaged, what bbolt does then leaves the
// lock held. What the first open reads does not grow with the file.
func Open(ctx context.Context, path string, opts bolt.Options, from Sources, now time.Time, progress func(collection string, records int64)) (*bolt.DB, File, error) {
	verdict := File{Path: path, Outcome: Opened}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		verdict.Outcome = Created
		if from.Seed != "" {
			seeded, err := FromSnapshot(ctx, from.Seed, path, opts, now, nil)
			switch {
			case err == nil:
				verdict = seeded
			case ctx.Err() != nil:
				return nil, verdict, ctx.Err()
			default:
				verdict.Skipped = []error{err}
			}
		}
	} else if verdict.Ending = bolt.EndingOf(path); verdict.Ending == bolt.Cut {
		if err := look(path, opts.Keys, &verdict, progress); err != nil {
			return Replace(ctx, path, opts, err, from, now)
		}
	}
	db, err := openReadable(path, opts)
	if err == nil {
		return db, verdict, nil
	}
	return Replace(ctx, path, opts, err, from, now)
}

// look checks a file that may not be what was written.
func look(path string, keys bolt.Keys, verdict *File, progress func(string, int64)) error {
	report, err := bolt.Check(path, keys, progress)
	if err != nil {
		return err
	}
	for _, c := range report.Collections {
		verdict.Checked += c.Objects
	}
	verdict.Damaged = report.DamagedRecords
	if report.Usable() {
		return nil
	}
	for _, p := range report.Problems {
		if p.Key == "" || report.DamagedRecords == 0 {
			return &store.CorruptionError{Path: path, Collection: p.Collection, Key: p.Key, Reason: p.Reason}
		}
	}
	return &store.CorruptionError{Path: path, Reason: report.Problems[0].String()}
}

// Replace sets the closed database at path aside because of cause, and opens in its
// place what the newest good snapshot has, or an empty one. Where cause is no reason
// to do so, cause is returned.
func Replace(ctx context.Context, path string, opts bolt.Options, cause error, from Sources, now time.Time) (*bolt.DB, File, error) {
	verdict := File{Path: path, Outcome: Opened}
	reason := unusable(cause)
	if reason == "" {
		return nil, verdict, cause
	}
	// First the new one: it may take minutes, and a crash meanwhile begins again.
	tmp, source, skipped := from.newest(ctx, path, opts)
	if ctx.Err() != nil {
		return nil, verdict, ctx.Err()
	}
	aside := asideName(path, reason, now)
	var err error
	if tmp == "" {
		if err = os.Rename(path, aside); err == nil {
			err = bolt.SyncDir(filepath.Dir(path))
		}
	} else {
		err = install(tmp, path, aside)
	}
	if err != nil {
		return nil, verdict, fmt.Errorf("set aside a %s database: %w", reason, errors.Join(err, cause))
	}
	verdict.Outcome, verdict.Reason, verdict.Cause, verdict.MovedTo = Quarantined, reason, cause, aside
	verdict.From, verdict.Skipped = source, skipped
	db, err := bolt.Open(path, opts)
	return db, verdict, err
}

// openReadable opens a database whose collections can all be looked at.
func openReadable(path string, opts bolt.Options) (*bolt.DB, error) {
	db, err := bolt.Open(path, opts)
	if err != nil {
		return nil, err
	}
	infos, err := db.Collections()
	for _, info := range infos {
		v, viewErr := db.View(info.ID)
		if viewErr != nil {
			err = errors.Join(err, viewErr)
			continue
		}
		v.Close()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// unusable returns why a file can't be used, "" where the error is of another kind.
func unusable(err error) string {
	switch {
	case errors.Is(err, store.ErrForeign):
		return "foreign"
	case errors.Is(err, store.ErrNewerFormat):
		return "newer-format"
	case errors.As(err, new(*store.CorruptionError)):
		return "damaged"
	}
	return ""
}

// asideName returns a new name for the file, so that nothing is lost.
func asideName(path, reason string, now time.Time) string {
	base := fmt.Sprintf("%s.%s-%s", path, reason, now.UTC().Format("20060102T150405Z"))
	target := base
	for i := 1; ; i++ {
		if _, err := os.Lstat(target); errors.Is(err, os.ErrNotExist) {
			return target
		}
		target = fmt.Sprintf("%s-%d", base, i)
	}
}
