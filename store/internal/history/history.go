// Package history keeps the change feed of a collection: for each key its newest
// change, by resourceVersion, and each deletion. The two stores share the rules and
// bring tables of their own.
//
// What holds of the entries after the horizon, and is what makes "what changed
// since RV x" one range scan:
//
//   - Every live object whose resourceVersion is past the horizon has one entry,
//     under that resourceVersion.
//   - Every deletion past the horizon has one entry of its own.
//   - No two entries have the same resourceVersion, and none is put at or below the
//     checkpoint that was there before its batch: somebody may have read up to that.
//
// Where a server's numbers do not allow that, being equal, opaque or out of order,
// the horizon moves past them: what can't be told in order is not told at all.
// Entries at or below the horizon mean nothing and wait to be trimmed.
package history

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Head is what is known of a history as a whole.
type Head struct {
	store.Horizon
	Entries int64 `json:"entries"` // at or below the horizon too
	Bytes   int64 `json:"bytes"`   // of the entries and of what deletions keep
}

// Entry is one change.
type Entry struct {
	Key       string
	Deleted   bool
	Time      int64 // seconds since 1970
	FirstRV   string
	FirstTime int64 // 0 where the object appeared before the history
}

// Table holds entries by resourceVersion. The bytes that its methods return are by
// how much the table grew or shrank.
type Table interface {
	Get(rv string) (e Entry, ok bool, err error)
	Put(rv string, e Entry) (bytes int64, err error)
	Delete(rv string) (bytes int64, err error)
}

// Version is which object a key holds. An empty RV is one from before the horizon
// that is not known better.
type Version struct{ UID, RV string }

// Change is what happens to a key. Old or New is nil where there is no object.
type Change struct {
	Key      string
	Old, New *Version

	// Deletion is the resourceVersion of a deletion; empty where it is not known.
	Deletion string

	// Bury keeps the last object of a deletion under the entry's rv. It returns by
	// how many bytes that lets the history grow. It is nil where that object is not
	// known: then the deletion can't be told.
	Bury func(rv string) (bytes int64, err error)
}

// Log takes the changes of one batch into a history. It is for one goroutine.
type Log struct {
	head  Head
	table Table
	known string // the checkpoint before the batch
	next  string // the one that the batch brings; known where it brings none
	now   int64  // time of the batch
	lost  string // the highest resourceVersion that could not be told
	free  string // where to look for the next free number

	recording bool
	replaced  map[string]Entry // of objects whose name another one has now
}

// NewLog starts a batch on a history whose head is head: known and next are the
// resourceVersions of the checkpoints before and after the batch, at is its time.
func NewLog(head Head, table Table, known, next string, at time.Time) *Log {
	l := &Log{} // on its caller's stack
	l.start(head, table, known, next, at)
	return l
}

func (l *Log) start(head Head, table Table, known, next string, at time.Time) {
	if next == "" {
		next = known
	}
	l.head, l.table, l.known, l.next, l.now = head, table, known, next, unix(at)
	l.recording = head.Recording() && decimal(known)
}

// Begin returns the head of a history that begins at a checkpoint, with no entries.
// It moves on to highest where that is past it, the highest resourceVersion of an
// object that the list brought: a server may give out such lists, and the object has
// no entry.
func Begin(rv, highest string, at time.Time) Head {
	return Head{Horizon: store.Horizon{RV: higher(rv, highest), Time: time.Unix(unix(at), 0).UTC()}}
}

// Higher returns the higher of two resourceVersions, a where b is no number.
func Higher(a, b string) string {
	if !decimal(a) && decimal(b) {
		return b
	}
	return higher(a, b)
}

// Recording says whether there is a history that goes on: not before the first
// complete list, and not where resourceVersions are opaque. What is opaque stays
// so until the next list.
func (h Head) Recording() bool { return decimal(h.RV) }

// Since says why changes after rv can't be told by a history with this head, of a
// collection in a state; nil where they can.
func (h Head) Since(collection string, state store.State, rv string) error {
	from := h.Seen(state)
	cmp, ok := object.CompareRV(rv, from.RV)
	if ok && cmp >= 0 || from.RV != "" && rv == from.RV {
		if after(rv, state.RV) {
			return fmt.Errorf("collection %s: resourceVersion %s: %w: it is at %s", collection, rv, store.ErrFuture, state.RV)
		}
		return nil
	}
	return &store.TooOldError{Collection: collection, Since: rv, Horizon: from}
}

// Seen is the horizon as readers see it: with opaque numbers it is the present.
func (h Head) Seen(state store.State) store.Horizon {
	if h.RV != "" && (!h.Recording() || !decimal(state.RV)) {
		return store.Horizon{RV: state.RV, Time: time.Unix(unix(state.Proven()), 0).UTC()}
	}
	return h.Horizon
}

// Due says whether the oldest entry is to be trimmed: it is below the horizon,
// older than cutoff in seconds, or there are more than maxBytes.
func (h Head) Due(rv string, e Entry, cutoff, maxBytes int64) bool {
	return !after(rv, h.RV) || e.Time < cutoff || h.Bytes > maxBytes
}

// Trim takes note that the oldest entry is gone.
func (h *Head) Trim(rv string, e Entry, bytes int64) {
	h.Entries--
	h.Bytes -= bytes
	if after(rv, h.RV) {
		h.Horizon = store.Horizon{RV: rv, Time: time.Unix(e.Time, 0).UTC()}
	}
}

// unix is the time in whole seconds; 0, which means unknown elsewhere, is not used.
func unix(t time.Time) int64 { return max(1, t.Unix()) }

// Recording says whether the batch is recorded at all: not before the first
// complete list, and not where resourceVersions are opaque.
func (l *Log) Recording() bool { return l.recording }

// Add records the changes of a batch.
func (l *Log) Add(changes []Change) error {
	for _, c := range changes {
		if err := l.Live(c); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if err := l.Gone(c); err != nil {
			return err
		}
	}
	return nil
}

// Live records the object that a change brings, if it brings one. A batch's changes
// all go through Live before the first goes through Gone, which looks for numbers
// that are free.
func (l *Log) Live(c Change) error {
	if !l.Recording() || c.New == nil || c.Old != nil && *c.Old == *c.New {
		return nil
	}
	var was Entry
	if c.Old != nil {
		var err error
		if was, err = l.forget(c.Key, c.Old.RV); err != nil {
			return err
		}
	}
	e := Entry{Key: c.Key, Time: l.now, FirstRV: was.FirstRV, FirstTime: was.FirstTime}
	if c.Old == nil || c.Old.UID != c.New.UID {
		e.FirstRV, e.FirstTime = c.New.RV, l.now
	}
	if c.Old != nil && c.Old.UID != c.New.UID {
		if l.replaced == nil {
			l.replaced = map[string]Entry{}
		}
		l.replaced[c.Key] = was
	}
	return l.put(c, e)
}

// Gone records that the object that a key had is gone, if it is: deleted, or
// replaced by another of the same name.
func (l *Log) Gone(c Change) error {
	switch {
	case !l.Recording(), c.Old == nil:
		return nil
	case c.New == nil:
		was, err := l.forget(c.Key, c.Old.RV)
		if err != nil {
			return err
		}
		return l.deleted(c, was)
	case c.Old.UID != c.New.UID:
		from := before(c.New.RV)
		return l.bury(c, l.replaced[c.Key], &from)
	}
	return nil
}

// forget takes the entry of a key's object out and returns it.
func (l *Log) forget(key, rv string) (Entry, error) {
	if !decimal(rv) {
		return Entry{}, nil
	}
	e, ok, err := l.table.Get(rv)
	if err != nil || !ok || e.Deleted || e.Key != key {
		return Entry{}, err
	}
	n, err := l.table.Delete(rv)
	l.head.Entries--
	l.head.Bytes -= n
	return e, err
}

// put records a key's new object.
func (l *Log) put(c Change, e Entry) error {
	rv := c.New.RV
	if !decimal(rv) {
		l.lose(l.next)
		return nil
	}
	if c.Old != nil && c.Old.RV == "" && !after(rv, l.head.RV) {
		return nil // unchanged since before the history
	}
	_, taken, err := l.table.Get(rv)
	if err != nil {
		return err
	}
	if taken || !after(rv, l.known) || c.Old != nil && after(c.Old.RV, rv) {
		// The number of another change, or out of order.
		l.lose(rv)
		if c.Old != nil {
			l.lose(c.Old.RV)
		}
		return nil
	}
	return l.set(rv, e)
}

// deleted records that a key's object was deleted.
func (l *Log) deleted(c Change, was Entry) error {
	if after(c.Deletion, l.known) && !after(c.Old.RV, c.Deletion) {
		from := digits(c.Deletion)
		return l.bury(c, was, &from)
	}
	// Nobody said when: some time before the batch's checkpoint. Many deletions may
	// be like this one, so the search goes on where the one before ended.
	if l.free == "" {
		l.free = digits(l.next)
	}
	return l.bury(c, was, &l.free)
}

// bury records that a key's object is gone, under the first free number from from
// downward that is past both the checkpoint before and the object's own. from
// moves with the search; where it is empty there is no such number.
func (l *Log) bury(c Change, was Entry, from *string) error {
	above := higher(l.known, c.Old.RV)
	for c.Bury != nil && after(*from, above) {
		rv := *from
		_, taken, err := l.table.Get(rv)
		if err != nil {
			return err
		}
		if taken {
			*from = before(rv)
			continue
		}
		if err := l.set(rv, Entry{Key: c.Key, Deleted: true, Time: l.now, FirstRV: was.FirstRV, FirstTime: was.FirstTime}); err != nil {
			return err
		}
		n, err := c.Bury(rv)
		l.head.Bytes += n
		return err
	}
	l.lose(c.Old.RV)
	if c.New != nil {
		l.lose(c.New.RV)
	}
	return nil
}

func (l *Log) set(rv string, e Entry) error {
	n, err := l.table.Put(rv, e)
	l.head.Entries++
	l.head.Bytes += n
	return err
}

// lose notes that a change at rv can't be told in its place.
func (l *Log) lose(rv string) {
	if l.lost == "" {
		l.lost = higher(l.head.RV, l.next)
	}
	l.lost = higher(l.lost, rv)
}

// Turn lets the log go on with another table of the same history, as in the next
// transaction.
func (l *Log) Turn(table Table) { l.table = table }

// End returns the head after the batch.
func (l *Log) End() Head {
	switch {
	case !l.Recording():
	case !decimal(l.next), after(l.known, l.next):
		l.head.RV, l.head.Time = l.next, time.Unix(l.now, 0).UTC()
	case l.lost != "":
		l.head.RV, l.head.Time = l.lost, time.Unix(l.now, 0).UTC()
	}
	return l.head
}

// maxDigits is how long a resourceVersion may be to be told in order.
const maxDigits = 255

func decimal(rv string) bool { return len(rv) <= maxDigits && object.IsDecimalRV(rv) }

// digits returns a number without leading zeros, empty where rv is none, or zero.
func digits(rv string) string {
	if !decimal(rv) {
		return ""
	}
	return strings.TrimLeft(rv, "0")
}

// before returns the number before rv, empty where there is none.
func before(rv string) string {
	rv = digits(rv)
	if rv == "" {
		return ""
	}
	if n, err := strconv.ParseUint(rv, 10, 64); err == nil {
		return strconv.FormatUint(n-1, 10)
	}
	n, _ := new(big.Int).SetString(rv, 10)
	return n.Sub(n, big.NewInt(1)).String()
}

// after says that a is a number past b. What is no number is past nothing.
func after(a, b string) bool {
	cmp, ok := object.CompareRV(a, b)
	return ok && cmp > 0
}

// higher returns the higher of two numbers, a where they can't be compared.
func higher(a, b string) string {
	if after(b, a) {
		return b
	}
	return a
}

// Key returns what orders tables by resourceVersion: the number of its digits, one
// byte, and the digits without leading zeros. Only for numbers.
func Key(rv string) []byte {
	rv = strings.TrimLeft(rv, "0")
	return append([]byte{byte(len(rv))}, rv...)
}

// RV is the inverse of Key, up to leading zeros. ok is false where b is no key.
func RV(b []byte) (rv string, ok bool) {
	if len(b) == 0 || int(b[0]) != len(b)-1 {
		return "", false
	}
	if len(b) == 1 {
		return "0", true
	}
	return string(b[1:]), b[1] != '0' && object.IsDecimalRV(string(b[1:]))
}
