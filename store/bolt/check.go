package bolt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

const (
	// shownProblems is how many problems, and how many notes, a report lists.
	shownProblems = 100

	// progressRecords is the number of records between two calls of progress.
	progressRecords = 1000
)

// Problem is one thing that Check found.
type Problem struct {
	Collection string `json:"collection,omitempty"` // ID; empty for the file as a whole
	Key        string `json:"key,omitempty"`        // of the object; empty for the collection as a whole
	Reason     string `json:"reason"`
}

func (p Problem) String() string {
	s := p.Reason
	if p.Key != "" {
		s = p.Key + ": " + s
	}
	if p.Collection != "" {
		s = p.Collection + ": " + s
	}
	return s
}

// CheckedCollection has the totals that Check counted in a collection.
type CheckedCollection struct {
	ID      string `json:"id"`
	RV      string `json:"resourceVersion,omitempty"` // of the checkpoint
	Synced  bool   `json:"synced"`
	Objects int64  `json:"objects"` // including the corrupt ones
	Bytes   int64  `json:"bytes"`   // of the JSON of the objects that are not corrupt
}

// CheckReport is the result of Check. As JSON it is stable: fields are added, not changed.
type CheckReport struct {
	Path           string              `json:"path"`
	FileBytes      int64               `json:"fileBytes"`
	FreeBytes      int64               `json:"freeBytes"`         // of the file, in pages that hold nothing
	Created        string              `json:"created,omitempty"` // time, RFC 3339
	Writer         string              `json:"writer,omitempty"`  // version of the program that made the file
	Key            string              `json:"key,omitempty"`     // id of the key that it is encrypted with
	JournalEntries int64               `json:"journalEntries"`
	JournalBytes   int64               `json:"journalBytes"`
	Collections    []CheckedCollection `json:"collections"`

	// Unsafe is true if the pages of the file are corrupt in a way that bbolt may not survive.
	// Check has read no further then, and no process should open the file.
	Unsafe bool `json:"unsafe"`

	// ProblemCount is how many problems there are; Problems has the first hundred.
	ProblemCount int64     `json:"problemCount"`
	Problems     []Problem `json:"problems"`

	// CorruptRecords is how many of the problems are single corrupt records. If there are no
	// other problems, the rest of the database can be used.
	CorruptRecords int64 `json:"corruptRecords"`

	// Notes are findings that need no action, most of them normal after a crash: the first hundred.
	Notes []Problem `json:"notes"`
}

// OK reports whether Check found no problem.
func (r *CheckReport) OK() bool { return r.ProblemCount == 0 }

// Usable reports whether the database can be opened: it has no problems but single corrupt
// records, which are never served.
func (r *CheckReport) Usable() bool { return !r.Unsafe && r.ProblemCount == r.CorruptRecords }

func (r *CheckReport) problem(p Problem) {
	r.ProblemCount++
	if len(r.Problems) < shownProblems {
		r.Problems = append(r.Problems, p)
	}
}

func (r *CheckReport) note(p Problem) {
	if len(r.Notes) < shownProblems {
		r.Notes = append(r.Notes, p)
	}
}

// failed adds the error that ended a part of the check as a problem. collection is empty for
// the file as a whole.
func (r *CheckReport) failed(collection string, err error) {
	p := Problem{Collection: collection, Reason: reason(err)}
	if damage := (*store.CorruptionError)(nil); errors.As(err, &damage) {
		p.Key = damage.Key
	}
	r.problem(p)
}

// reason returns the text of err without the names that a Problem has fields for.
func reason(err error) string {
	if damage := (*store.CorruptionError)(nil); errors.As(err, &damage) {
		return damage.Reason
	}
	return err.Error()
}

// errUnsafe ends the opening of a file whose pages are so corrupt that bbolt must not follow them.
var errUnsafe = errors.New("the structure of the file is corrupt")

// Check reads the whole database at path, the file under its journal, and checks that its parts fit
// together: bbolt's pages, the journal, the dictionaries, and of each collection its records,
// totals, indexes and history. It changes nothing, and no process can write meanwhile.
// It needs memory for the keys and index entries of one collection, not for its objects.
//
// The report has the problems of the database. If Check returns an error there is no report:
// it wraps store.ErrLocked, ErrNoStore, ErrForeign, ErrNewerFormat, ErrOldFormat or ErrKey, or is a
// *store.CorruptionError if the file can't even be opened.
//
// progress, unless it is nil, is called now and then with the number of a collection's records read
// so far, from one goroutine, until Check returns.
func Check(path string, keys Keyring, progress func(collection string, records int64)) (*CheckReport, error) {
	return CheckContext(context.Background(), path, keys, progress)
}

// CheckContext is [Check] that ends early, with the error of ctx, once ctx is done.
func CheckContext(ctx context.Context, path string, keys Keyring, progress func(collection string, records int64)) (*CheckReport, error) {
	if progress == nil {
		progress = func(string, int64) {}
	}
	c := &check{
		ctx: ctx, path: path, keys: keys, progress: progress,
		report: &CheckReport{Path: path, Collections: []CheckedCollection{}, Problems: []Problem{}, Notes: []Problem{}},
	}
	if err := cmp.Or(boltfile.Guarded(path, c.run), ctx.Err()); err != nil {
		return nil, err
	}
	return c.report, nil
}

type check struct {
	ctx      context.Context
	path     string
	keys     Keyring
	progress func(string, int64)
	report   *CheckReport
	db       *DB
}

func (c *check) run() (err error) {
	var maxBytes int64
	if info, err := os.Stat(c.path); err == nil {
		maxBytes = info.Size() // Check does not enforce the quota
	}
	c.db, err = open(c.path, Options{ReadOnly: true, MaxBytes: maxBytes, Keys: c.keys}, false, c.structure)
	switch {
	case errors.Is(err, errUnsafe):
		c.report.Unsafe = true
		return nil // the report has the reason
	case errors.As(err, new(*store.CorruptionError)) && !c.report.OK():
		c.report.failed("", err) // in addition to the problems of the pages
		return nil
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, c.db.Close()) }()
	var ids []string
	err = c.db.handle.View(func(tx *boltfile.Tx) error {
		if err := c.buckets(tx); err != nil {
			return err
		}
		c.meta(tx)
		c.dictionaries(tx)
		c.journal(tx)
		var err error
		ids, err = c.collections(tx)
		return err
	})
	if err != nil {
		c.report.failed("", err)
		return nil
	}
	for _, id := range ids {
		if c.ctx.Err() != nil {
			break
		}
		c.collection(id)
	}
	return nil
}

// structure checks the pages and, if they are sound, runs bbolt's own check.
func (c *check) structure(file *boltfile.File) error {
	if err := c.pages(); err != nil {
		c.report.problem(Problem{Reason: err.Error()})
	}
	if !c.report.OK() {
		return errUnsafe
	}
	return file.View(func(tx *boltfile.Tx) error {
		tx.CheckTree(func(err error) { c.report.problem(Problem{Reason: err.Error()}) })
		return nil
	})
}

// untilDone is an io.Reader that ends with its context.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

func (c *check) pages() error {
	f, err := os.Open(c.path)
	if err != nil {
		return fmt.Errorf("check database: %w", err)
	}
	// Read the file once from start to end: the check itself reads in random order, and the
	// kernel would fetch page by page.
	c.report.FileBytes, err = io.Copy(io.Discard, untilDone{c.ctx, f})
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	c.report.FreeBytes, err = boltfile.CheckPages(c.path,
		func(collection, reason string) { c.report.problem(Problem{Collection: collection, Reason: reason}) },
		func(reason string) { c.report.note(Problem{Reason: reason}) })
	return err
}

// buckets checks that the file has no buckets that the format does not know: a bit that changed in
// the name of the journal would hide all of it.
func (c *check) buckets(tx *boltfile.Tx) error {
	return tx.ForEachBucket(func(name []byte) error {
		if !slices.ContainsFunc(format.Buckets, func(known []byte) bool { return bytes.Equal(known, name) }) {
			c.report.problem(Problem{Reason: fmt.Sprintf("the file has a bucket %q, which is not of this format", name)})
		}
		return nil
	})
}

// meta checks the values of the meta bucket that opening the file does not check.
func (c *check) meta(tx *boltfile.Tx) {
	b := tx.Bucket(format.BucketMeta)
	c.report.Key = c.db.handle.Stats(c.keys).EncryptionKey
	c.report.Created, c.report.Writer = string(b.Get(format.KeyCreated)), string(b.Get(format.KeyWriter))
	if _, err := time.Parse(time.RFC3339, c.report.Created); err != nil {
		c.report.problem(Problem{Reason: "meta: the time of creation: " + err.Error()})
	}
	if err := boltfile.VerifyStamp(tx); err != nil {
		c.report.problem(Problem{Reason: err.Error()})
	}
	if raw := b.Get(format.KeyEpoch); raw != nil && len(raw) != 8 {
		c.report.problem(Problem{Reason: fmt.Sprintf("meta: the epoch has %d bytes, not 8", len(raw))})
	}
	switch raw := b.Get(format.KeyFolding); {
	case raw != nil && len(raw) != 8:
		c.report.problem(Problem{Reason: fmt.Sprintf("meta: the journal entry that a fold needs has %d bytes, not 8", len(raw))})
	case raw != nil:
		c.report.note(Problem{Reason: fmt.Sprintf("a fold of the journal up to entry %d is half done; the next one starts again from the beginning", binary.BigEndian.Uint64(raw))})
	}
}

// dictionaries checks each dictionary, used or not.
func (c *check) dictionaries(tx *boltfile.Tx) {
	b := tx.Bucket(format.BucketDict)
	cur := b.Cursor()
	for k, v := cur.First(); k != nil; k, v = cur.Next() {
		if len(k) != 4 {
			c.report.problem(Problem{Reason: fmt.Sprintf("dictionary under the key %x, which is no id", k)})
			continue
		}
		id := binary.BigEndian.Uint32(k)
		if format.DecodeDict(k, v) == nil {
			c.report.problem(Problem{Reason: fmt.Sprintf("dictionary %d is corrupt", id)})
		}
		if uint64(id) > b.Sequence() {
			c.report.problem(Problem{Reason: fmt.Sprintf("dictionary %d is ahead of the sequence %d: a new one would take its id", id, b.Sequence())})
		}
	}
}

// journal checks each journal entry, also after a corrupt one, where the store itself never reads.
func (c *check) journal(tx *boltfile.Tx) {
	b := tx.Bucket(format.BucketJournal)
	if b == nil {
		return
	}
	report := func(seq any, reason string) {
		c.report.problem(Problem{Reason: fmt.Sprintf("journal entry %v: %s", seq, reason)})
	}
	var last uint64
	var room format.JournalRoom
	cur := b.Cursor()
	for k, _ := cur.First(); k != nil; k, _ = cur.Next() {
		if len(k) != 8 {
			report(fmt.Sprintf("%x", k), "its key is no sequence number")
			continue
		}
		seq := binary.BigEndian.Uint64(k)
		switch {
		case last != 0 && seq <= last:
			report(seq, boltfile.ErrOrder.Error())
			return // a cursor might never end
		case last != 0 && seq != last+1:
			report(seq, "entries before it are missing")
		}
		last = seq
		v := writeback.JournalEntry(b, k)
		c.report.JournalEntries++
		c.report.JournalBytes += int64(len(v))
		entry, err := format.DecodeJournalEntry(c.db.codecs, &room, 0, k, v)
		if err != nil {
			report(seq, err.Error())
			continue
		}
		for _, bucket := range missingBuckets(tx, entry) {
			report(seq, fmt.Sprintf("it changes the bucket %q, which is missing", bucket))
		}
	}
	switch {
	case last != 0 && last != b.Sequence():
		c.report.problem(Problem{Reason: fmt.Sprintf("journal: the newest entry is %d, the sequence is %d", last, b.Sequence())})
	case last == 0 && b.HasPage(): // a fold makes the bucket again: one bit of a page's header can hide all entries
		c.report.problem(Problem{Reason: fmt.Sprintf("journal: its page has no entry, the sequence is %d", b.Sequence())})
	}
}

// missingBuckets returns the paths of the buckets that an entry has cells for and that the file
// does not have. A fold could not move these cells.
func missingBuckets(tx *boltfile.Tx, entry *format.JournalCells) (missing []string) {
	seen := map[string]bool{}
	for _, x := range entry.Cells {
		path, _ := format.Locate(string(entry.Addr(x)))
		name := string(bytes.Join(path, []byte{'/'}))
		if !seen[name] && tx.At(path) == nil {
			missing = append(missing, name)
		}
		seen[name] = true
	}
	return missing
}
