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

// Outcome is the result of opening a file.
type Outcome string

// The outcomes.
const (
	Opened      Outcome = "opened"      // the file is in use, unchanged
	Created     Outcome = "created"     // there was no file
	Quarantined Outcome = "quarantined" // the file was set aside, and another took its place
	Replaced    Outcome = "replaced"    // a snapshot took its place on request
)

// File is the verdict on a database file.
type File struct {
	Path    string
	Outcome Outcome

	// Reason is why the file was set aside, one word: "foreign", "corrupt", "newer-format",
	// "old-format". Cause is the error.
	Reason string
	Cause  error

	// Ending is how the last process left the file. Checked is the number of records that were
	// checked: all after a power cut, none otherwise. Corrupt is the number of single corrupt
	// records among them. They are not served, so the file stays in use.
	Ending           bolt.Shutdown
	Checked, Corrupt int64

	// MovedTo is the path to which the file was renamed.
	MovedTo string

	// From is the snapshot that took the file's place. It is nil if an empty file took it, or if
	// the file is in use unchanged.
	From *From

	// Skipped are the errors of snapshots that could not be used.
	Skipped []error
}

// String returns the verdict in one line.
func (f File) String() string {
	text := string(f.Outcome)
	switch {
	case f.Outcome == Quarantined:
		text = fmt.Sprintf("quarantined: %s (%v); the old file is %s", f.Reason, f.Cause, f.MovedTo)
	case f.Outcome == Replaced:
		text = "replaced; the old file is " + f.MovedTo
	case f.Corrupt > 0:
		text += fmt.Sprintf(" after a power cut: %d of %d records are corrupt", f.Corrupt, f.Checked)
	case f.Checked > 0:
		text += fmt.Sprintf(" after a power cut: %d records are intact", f.Checked)
	}
	if f.From != nil {
		text += "; " + f.From.String()
	}
	return text
}

// Open opens the database at path for writing. If the file is corrupt, foreign or of a newer
// format, it is set aside, and the newest good snapshot takes its place, if there is one. If there
// is no file, the seed is used. It returns only errors that a retry or an operator can fix:
// store.ErrLocked, permissions, a full disk.
//
// If the file was closed cleanly, it is opened at once. If its process was killed since the machine
// started, the structure of its pages is checked: corrupt pages may have crashed the process. After a
// power cut, or if the file comes from another machine, all of it is checked by [bolt.Check]. progress,
// if not nil, receives the progress of that check.
//
// Each file is opened twice, first for reading: a writable open follows the list of free pages, and
// if a power cut corrupted that list, bbolt fails in a way that leaves the lock held. The cost of
// the first open does not depend on the size of the file.
func Open(ctx context.Context, path string, opts bolt.Options, from Sources, now time.Time, progress func(collection string, records int64)) (*bolt.DB, File, error) {
	db, verdict, err := OpenAsIs(ctx, path, opts, from.Seed, now, progress)
	if err != nil {
		return Replace(ctx, path, opts, err, from, now)
	}
	return db, verdict, nil
}

// OpenAsIs opens the database at path as [Open] does, and sets nothing aside: if the file can't be used,
// the file is unchanged, and the caller decides on the error.
func OpenAsIs(ctx context.Context, path string, opts bolt.Options, seed string, now time.Time, progress func(collection string, records int64)) (*bolt.DB, File, error) {
	verdict := File{Path: path, Outcome: Opened}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		verdict.Outcome = Created
		if seed != "" {
			seeded, err := FromSnapshot(ctx, seed, path, opts, now, nil)
			switch {
			case err == nil:
				verdict = seeded
			case ctx.Err() != nil:
				return nil, verdict, ctx.Err()
			default:
				verdict.Skipped = []error{err}
			}
		}
	} else {
		verdict.Ending = bolt.LastShutdown(path)
		if err := look(ctx, path, opts.Keys, &verdict, progress); err != nil {
			return nil, verdict, err
		}
	}
	db, err := openReadable(path, opts)
	return db, verdict, err
}

func look(ctx context.Context, path string, keys bolt.Keyring, verdict *File, progress func(string, int64)) error {
	switch verdict.Ending {
	case bolt.Clean:
		return nil
	case bolt.Crashed:
		return bolt.CheckPages(path)
	}
	report, err := bolt.CheckContext(ctx, path, keys, progress)
	if err != nil {
		return err
	}
	for _, c := range report.Collections {
		verdict.Checked += c.Objects
	}
	verdict.Corrupt = report.CorruptRecords
	if report.Usable() {
		return nil
	}
	for _, p := range report.Problems {
		if p.Key == "" || report.CorruptRecords == 0 {
			return &store.CorruptionError{Path: path, Collection: p.Collection, Key: p.Key, Reason: p.Reason}
		}
	}
	return &store.CorruptionError{Path: path, Reason: report.Problems[0].String()}
}

// Replace sets the closed database at path aside because of cause, and opens in its place the
// content of the newest good snapshot, or an empty database. If cause does not make the file
// unusable, Replace returns cause.
func Replace(ctx context.Context, path string, opts bolt.Options, cause error, from Sources, now time.Time) (*bolt.DB, File, error) {
	verdict := File{Path: path, Outcome: Opened}
	reason := unusable(cause)
	if reason == "" {
		return nil, verdict, cause
	}
	// Make the new file first: that may take minutes, and after a crash it is made again.
	tmp, source, skipped := from.newest(ctx, path, opts)
	if ctx.Err() != nil {
		return nil, verdict, ctx.Err()
	}
	aside := asideName(path, reason, now)
	var err error
	if tmp == "" {
		if err = os.Rename(path, aside); err == nil {
			err = files.SyncDir(filepath.Dir(path))
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

// openReadable opens a database and checks that all of its collections can be viewed.
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

// unusable returns the reason why a file can't be used, or "" if err does not concern its content.
func unusable(err error) string {
	switch {
	case errors.Is(err, store.ErrForeign):
		return "foreign"
	case errors.Is(err, store.ErrNewerFormat):
		return "newer-format"
	case errors.Is(err, store.ErrOldFormat):
		return "old-format"
	case errors.As(err, new(*store.CorruptionError)):
		return "corrupt"
	}
	return ""
}

// statTarget returns the path of the regular file at path. If path is a link, it returns the link's
// target, because renaming the link would not rename the database.
func statTarget(path string) (string, fs.FileInfo, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file: give another path", path)
	}
	return path, info, err
}

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

// hints are next steps for the operator of a database or snapshot that can't be used.
var hints = []struct {
	err  error
	hint string
}{
	{store.ErrLocked, "stop the other snapcache, or give this one a store.path of its own"},
	{store.ErrKey, "name its key in encryption.keyFile, or in encryption.oldKeyFiles if it is an old one; a command takes it from --encryption-key-file or the agent's --config"},
	{store.ErrNetworkFS, "give a store.path or --db on a local disk; snapshots.dir may be anywhere"},
	{store.ErrForeign, "give another file with --db; an agent that starts on it sets it aside"},
	{store.ErrNewerFormat, "use the version of snapcache that wrote it, or a later one"},
	{store.ErrOldFormat, "an agent that starts on it sets it aside"},
	{snapshot.ErrNoSnapshot, "snapcache snapshot list shows the names"},
	{snapshot.ErrQuota, "raise store.maxSize, or take another snapshot"},
	{bolt.ErrNoRoom, "free space, or put snapshots elsewhere (snapshots.dir)"},
}

// WithHint adds the next step to an error for a database or snapshot, if there is one and the error
// names none yet.
func WithHint(err error) error {
	if errors.As(err, new(*store.Error)) {
		return err
	}
	for _, h := range hints {
		if errors.Is(err, h.err) {
			return &store.Error{Err: err, Hint: h.hint}
		}
	}
	return err
}
