package bolt

import (
	"bytes"
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

	// progressRecords is after how many records Check tells how far it is.
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

// CheckedCollection is what Check counted in a collection.
type CheckedCollection struct {
	ID      string `json:"id"`
	RV      string `json:"resourceVersion,omitempty"` // of the checkpoint
	Synced  bool   `json:"synced"`
	Objects int64  `json:"objects"` // damaged ones too
	Bytes   int64  `json:"bytes"`   // of the JSON of those that are not damaged
}

// CheckReport is what Check found out about a file. As JSON it is stable: fields
// are added, not changed.
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

	// Unsafe says that the pages of the file are damaged in a way that bbolt may not
	// survive. It was not looked into any further, and nobody should open it.
	Unsafe bool `json:"unsafe"`

	// ProblemCount is how many problems there are; Problems has the first hundred.
	ProblemCount int64     `json:"problemCount"`
	Problems     []Problem `json:"problems"`

	// DamagedRecords is how many of the problems are records that are damaged by
	// themselves. Where there are no others, the rest can be used.
	DamagedRecords int64 `json:"damagedRecords"`

	// Notes are what is as it may be after a crash, and is no damage. The first
	// hundred.
	Notes []Problem `json:"notes"`
}

// OK says that nothing is wrong.
func (r *CheckReport) OK() bool { return r.ProblemCount == 0 }

// Usable says that a database can be opened: nothing is wrong with it, or nothing but
// single records, which are never served.
func (r *CheckReport) Usable() bool { return !r.Unsafe && r.ProblemCount == r.DamagedRecords }

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

// failed adds what went wrong in a part of the check, with what is known about it.
func (r *CheckReport) failed(collection string, err error) {
	p := Problem{Collection: collection, Reason: reason(err)}
	if damage := (*store.CorruptionError)(nil); errors.As(err, &damage) {
		p.Key = damage.Key
	}
	r.problem(p)
}

// reason is an error without the names that a Problem has fields for.
func reason(err error) string {
	if damage := (*store.CorruptionError)(nil); errors.As(err, &damage) {
		return damage.Reason
	}
	return err.Error()
}

// errUnsafe says that the pages of a file are in such a state that bbolt must not
// be let loose on them.
var errUnsafe = errors.New("the structure of the file is damaged")

// Check reads all of the database at path, as file and journal say together, and
// compares what must fit together: bbolt's pages, the journal, the dictionaries,
// and of each collection its records, totals and indexes. It changes nothing and
// keeps others from writing as long as it takes. It needs memory for the keys and
// index entries of one collection, not for its objects.
//
// What is wrong with a database is in the report. An error says that there is no
// report: it wraps store.ErrLocked, ErrNoStore, ErrForeign, ErrNewerFormat or ErrKey, or is
// a *store.CorruptionError where the file can't even be opened.
//
// progress, unless it is nil, is called now and then with the number of records
// that were read of a collection, from one goroutine, until Check returns.
func Check(path string, keys Keyring, progress func(collection string, records int64)) (*CheckReport, error) {
	if progress == nil {
		progress = func(string, int64) {}
	}
	c := &check{
		path: path, keys: keys, progress: progress,
		report: &CheckReport{Path: path, Collections: []CheckedCollection{}, Problems: []Problem{}, Notes: []Problem{}},
	}
	if err := boltfile.Guarded(path, c.run); err != nil {
		return nil, err
	}
	return c.report, nil
}

type check struct {
	path     string
	keys     Keyring
	progress func(string, int64)
	report   *CheckReport
	db       *DB
}

func (c *check) run() (err error) {
	var maxBytes int64
	if info, err := os.Stat(c.path); err == nil {
		maxBytes = info.Size() // the quota is none of Check's business
	}
	c.db, err = open(c.path, Options{ReadOnly: true, MaxBytes: maxBytes, Keys: c.keys}, c.structure)
	switch {
	case errors.Is(err, errUnsafe):
		c.report.Unsafe = true
		return nil // why, is in the report
	case errors.As(err, new(*store.CorruptionError)) && !c.report.OK():
		c.report.failed("", err) // beside what was found in the pages
		return nil
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, c.db.Close()) }()
	var ids []string
	err = c.db.view(func(tx *boltfile.Tx) error {
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
		c.collection(id)
	}
	return nil
}

// structure checks the pages, then has bbolt check them in its own way.
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

func (c *check) pages() error {
	f, err := os.Open(c.path)
	if err != nil {
		return fmt.Errorf("check database: %w", err)
	}
	// Once from start to end: what follows reads in no order, and for that the
	// kernel fetches page by page.
	c.report.FileBytes, err = io.Copy(io.Discard, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	c.report.FreeBytes, err = boltfile.CheckPages(c.path,
		func(collection, reason string) { c.report.problem(Problem{Collection: collection, Reason: reason}) },
		func(reason string) { c.report.note(Problem{Reason: reason}) })
	return err
}

// meta looks at what opening does not need of the meta bucket.
func (c *check) meta(tx *boltfile.Tx) {
	b := tx.Bucket(format.BucketMeta)
	c.report.Key = c.db.handle.Stats(c.keys).KeyID
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
		c.report.note(Problem{Reason: fmt.Sprintf("a fold of the journal up to entry %d is half done; the next one begins anew", binary.BigEndian.Uint64(raw))})
	}
}

// dictionaries looks at each of them, used or not.
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
			c.report.problem(Problem{Reason: fmt.Sprintf("dictionary %d is damaged", id)})
		}
		if uint64(id) > b.Sequence() {
			c.report.problem(Problem{Reason: fmt.Sprintf("dictionary %d is ahead of the sequence %d: a new one would take its id", id, b.Sequence())})
		}
	}
}

// journal looks at each entry, also behind one that is damaged, where the store
// itself reads no further.
func (c *check) journal(tx *boltfile.Tx) {
	b := tx.Bucket(format.BucketJournal)
	if b == nil {
		return
	}
	report := func(k []byte, reason string) {
		name := fmt.Sprintf("%x", k)
		if len(k) == 8 {
			name = fmt.Sprint(binary.BigEndian.Uint64(k))
		}
		c.report.problem(Problem{Reason: fmt.Sprintf("journal entry %s: %s", name, reason)})
	}
	var last uint64
	cur := b.Cursor()
	for k, _ := cur.First(); k != nil; k, _ = cur.Next() {
		if len(k) != 8 {
			report(k, "its key is no sequence number")
			continue
		}
		seq := binary.BigEndian.Uint64(k)
		switch {
		case last != 0 && seq <= last:
			report(k, boltfile.ErrOrder.Error())
			return // a cursor may go round for ever
		case last != 0 && seq != last+1:
			report(k, "entries before it are missing")
		}
		last = seq
		v := writeback.JournalEntry(b, k)
		c.report.JournalEntries++
		c.report.JournalBytes += int64(len(v))
		entry, err := format.DecodeJournalEntry(c.db.codecs, 0, k, v)
		if err != nil {
			report(k, err.Error())
			continue
		}
		for _, bucket := range missingBuckets(tx, entry) {
			report(k, fmt.Sprintf("it changes the bucket %q, which is missing", bucket))
		}
	}
	if last > b.Sequence() || last != 0 && last < b.Sequence() {
		c.report.problem(Problem{Reason: fmt.Sprintf("journal: the newest entry is %d, the sequence says %d", last, b.Sequence())})
	}
}

// missingBuckets returns the paths of the buckets that the cells of an entry are in and
// the file does not have: a fold could not move them there.
func missingBuckets(tx *boltfile.Tx, entry *format.JournalCells) []string {
	there := map[string]bool{}
	var missing []string
	for _, x := range entry.Cells {
		path, _ := format.Locate(string(entry.Addr(x)))
		name := string(bytes.Join(path, []byte{'/'}))
		if _, seen := there[name]; seen {
			continue
		}
		b := tx.At(path)
		if there[name] = b != nil; b == nil {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}
