// Package history maintains the change feed of a collection: the newest change of each key, by
// resourceVersion, and each deletion, in a [Table].
//
// The invariants of the entries after the horizon, which make "all changes since RV x" one range
// scan:
//
//   - Every live object whose resourceVersion is past the horizon has one entry,
//     under that resourceVersion.
//   - Every deletion past the horizon has one entry of its own.
//   - No two entries have the same resourceVersion, and none is put at or below the checkpoint
//     before its batch, because a reader may have read up to that checkpoint.
//
// If a server's resourceVersions do not allow that, because they are equal, opaque or out of order,
// the horizon moves past them: a change without a place in the order is not recorded. Entries at or
// below the horizon have no meaning and wait to be trimmed.
//
// A list, and a batch in which a key changes more than once, leave a gap: the changes after a
// resourceVersion within it are not all there, so a reader must not begin there.
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

// Head is the horizon of a history with its totals.
type Head struct {
	store.Horizon
	Entries int64 `json:"entries"` // also at or below the horizon
	Bytes   int64 `json:"bytes"`   // of the entries and of the deleted objects

	// Attributes is the Spec of the attributes that are recorded, empty for none, and AttributesSince
	// the resourceVersion from which on they are.
	Attributes      string `json:"attributes,omitempty"`
	AttributesSince string `json:"attributesSince,omitempty"`
}

// Entry is one change.
type Entry struct {
	Key       string
	Deleted   bool
	Time      int64 // seconds since 1970
	FirstRV   string
	FirstTime int64 // 0 if the object appeared before the history

	// Rows are changes of the object's attributes, all since RowsSince; an empty RowsSince stands for
	// the whole time that the head has attributes. Entries share rows: they are never changed.
	Rows      []store.AttributesRow
	RowsSince string

	// Gap is set if the entry is no change but a gap, under [GapKey]: the history does not have the
	// states between FirstRV and the key's resourceVersion. Of the other fields it has only Time.
	Gap bool
}

// Table holds entries by [Key] or [GapKey]. Put returns the number of bytes by which the table grew,
// Delete that by which it shrank.
type Table interface {
	Get(key []byte) (e Entry, ok bool, err error)
	Put(key []byte, e Entry) (bytes int64, err error)
	Delete(key []byte) (bytes int64, err error)
}

// Version identifies the object at a key. An empty RV stands for an unknown resourceVersion before
// the horizon.
type Version struct {
	UID, RV string

	Attributes []string // if the history records them
	Unreadable bool     // the attributes are unknown
}

// Change is a change of one key. Old or New is nil if there is no object.
type Change struct {
	Key      string
	Old, New *Version

	// Deletion is the resourceVersion of a deletion; empty if it is not known.
	Deletion string

	// Bury stores the last object of a deletion under the entry's rv, and returns the number of
	// bytes by which the history grew. If that object is not known, Bury is nil, and the deletion
	// is not recorded.
	Bury func(rv string) (bytes int64, err error)
}

// Recorder records the changes of one batch in a history. It is for one goroutine.
type Recorder struct {
	head  Head
	table Table
	known string // the checkpoint before the batch
	next  string // the checkpoint after the batch; same as known if the batch has none
	now   int64  // time of the batch
	lost  string // the highest resourceVersion that could not be recorded
	free  string // the resourceVersion from which the search for a free one continues; empty before the first search

	unseen bool // no reader can be at a resourceVersion between known and next

	recording bool
	replaced  map[string]Entry // entries of objects whose key another object has now
}

// NewRecorder starts a batch on a history whose head is head: known and next are the
// resourceVersions of the checkpoints before and after the batch, at is its time.
func NewRecorder(head Head, table Table, known, next string, at time.Time) *Recorder {
	r := &Recorder{} // inlined, so that it is on the caller's stack
	r.start(head, table, known, next, at)
	return r
}

func (r *Recorder) start(head Head, table Table, known, next string, at time.Time) {
	if next == "" {
		next = known
	}
	r.head, r.table, r.known, r.next, r.now = head, table, known, next, unix(at)
	r.recording = head.Recording() && decimal(known)
}

// Begin returns the head of a history that begins at the checkpoint of a list, with no entries.
// highest is the highest resourceVersion of an object of the list. If that is past the checkpoint, as
// some servers allow, the history begins there, because the object has no entry.
// attributes is the index of the attributes that it records if they are wanted, nil for none.
func Begin(cp store.Checkpoint, highest string, attributes *store.Index) Head {
	head := Head{Horizon: horizon(higher(cp.RV, highest), unix(cp.Proven()))}
	head.First = cp.ListReason == store.ReasonInitial
	if spec := wanted(attributes, ""); spec != "" {
		head.Attributes, head.AttributesSince = spec, head.RV
	}
	return head
}

// None returns the head of a history that takes no entries until the next list, as one with opaque
// resourceVersions.
func None(cp store.Checkpoint) Head { return Head{Horizon: horizon("none", unix(cp.Proven()))} }

// Higher returns the higher of two resourceVersions. If only one of them is a number, it returns
// that one; if neither is, a.
func Higher(a, b string) string {
	if !decimal(a) && decimal(b) {
		return b
	}
	return higher(a, b)
}

// Recording reports whether the history takes entries: not before the first complete list, not if
// resourceVersions are opaque, and not after [None]. An opaque horizon stays until the next list.
func (h Head) Recording() bool { return decimal(h.RV) }

// Since returns nil if a history with this head, of a collection in a state, has all changes after
// rv. Otherwise it returns a [*store.TooOldError], or an error that wraps [store.ErrAhead].
func (h Head) Since(collection string, state store.State, rv string) error {
	from := h.Seen(state)
	cmp, ok := object.CompareRV(rv, from.RV)
	if ok && cmp >= 0 || from.RV != "" && rv == from.RV {
		if after(rv, state.RV) {
			return fmt.Errorf("resourceVersion %s is %w, which is at %s", rv, store.ErrAhead, state.RV)
		}
		return nil
	}
	return &store.TooOldError{Collection: collection, Since: rv, Horizon: from}
}

// Seen returns the horizon for readers: with opaque resourceVersions it is the checkpoint of state.
func (h Head) Seen(state store.State) store.Horizon {
	if h.RV != "" && (!h.Recording() || !decimal(state.RV)) {
		return horizon(state.RV, unix(state.Proven()))
	}
	return h.Horizon
}

// Due reports whether the oldest entry is to be trimmed: it is at or below the horizon, or older
// than cutoff (in seconds since 1970), or the history has more than maxBytes.
func (h Head) Due(rv string, e Entry, cutoff, maxBytes int64) bool {
	return !after(rv, h.RV) || e.Time < cutoff || h.Bytes > maxBytes
}

// Trim subtracts the oldest entry, which the caller has deleted, and moves the horizon to it if it
// was past the horizon.
func (h *Head) Trim(rv string, e Entry, bytes int64) {
	h.Entries--
	h.Bytes -= bytes
	if after(rv, h.RV) {
		h.Horizon = horizon(rv, e.Time)
	}
}

func horizon(rv string, seconds int64) store.Horizon {
	return store.Horizon{RV: rv, Time: time.Unix(seconds, 0).UTC()}
}

// unix returns a time in whole seconds since 1970, at least 1: 0 means unknown in an [Entry].
func unix(t time.Time) int64 { return max(1, t.Unix()) }

// Recording reports whether the batch is recorded: not before the first complete list, and not if
// resourceVersions are opaque.
func (r *Recorder) Recording() bool { return r.recording }

// Add records the changes of a batch and its gap, nil for none.
func (r *Recorder) Add(changes []Change, gap *store.Gap) error {
	if gap != nil {
		if err := r.Skip(*gap); err != nil {
			return err
		}
	}
	for _, add := range []func(Change) error{r.Upsert, r.DeletePlaced, r.DeleteUnplaced} {
		for _, c := range changes {
			if err := add(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// Upsert records the new object of a change, if it has one. Call Upsert for all changes of a batch,
// then DeletePlaced for all, then DeleteUnplaced for all: each looks for resourceVersions that the calls
// before it have left free.
func (r *Recorder) Upsert(c Change) error {
	if !r.Recording() || c.New == nil || c.Old != nil && c.Old.UID == c.New.UID && c.Old.RV == c.New.RV {
		return nil
	}
	var was Entry
	if c.Old != nil {
		var err error
		if was, err = r.forget(c.Key, c.Old.RV); err != nil {
			return err
		}
	}
	e := Entry{Key: c.Key, Time: r.now, FirstRV: was.FirstRV, FirstTime: was.FirstTime}
	if c.Old == nil || c.Old.UID != c.New.UID {
		e.FirstRV, e.FirstTime = c.New.RV, r.now
	}
	if c.Old != nil && c.Old.UID != c.New.UID {
		if r.replaced == nil {
			r.replaced = map[string]Entry{}
		}
		r.replaced[c.Key] = was
	} else if c.Old != nil {
		e.Rows, e.RowsSince = r.head.rows(c, was)
	}
	return r.put(c, e)
}

// Skip records a gap, before the deletions. Without a first or last resourceVersion it begins after the
// checkpoint before the batch, or ends at the one after it; it does not reach past these.
func (r *Recorder) Skip(g store.Gap) error {
	from, to := higher(r.known, before(g.First)), g.Last
	if !decimal(to) || after(to, r.next) {
		to = r.next
	}
	if !r.Recording() || !after(before(to), from) {
		return nil
	}
	r.unseen = from == r.known && to == r.next
	was, ok, err := r.table.Get(GapKey(to))
	if ok && err == nil { // from before the checkpoint went back
		err = r.drop(GapKey(to))
		if after(from, was.FirstRV) {
			from = was.FirstRV
		}
	}
	if err != nil {
		return err
	}
	return r.set(GapKey(to), Entry{Gap: true, FirstRV: from, Time: r.now})
}

// forget deletes the entry of a key's object and returns it; see [Head.missing] if there is none.
func (r *Recorder) forget(key, rv string) (Entry, error) {
	if !decimal(rv) {
		return Entry{}, nil
	}
	e, ok, err := r.table.Get(Key(rv))
	if err != nil || !ok || e.Deleted || e.Key != key {
		return r.head.missing(rv), err
	}
	return e, r.drop(Key(rv))
}

// put records a key's new object.
func (r *Recorder) put(c Change, e Entry) error {
	rv := c.New.RV
	if !decimal(rv) {
		r.lose(r.next)
		return nil
	}
	if c.Old != nil && c.Old.RV == "" && !after(rv, r.head.RV) {
		return nil // unchanged since before the history
	}
	_, taken, err := r.table.Get(Key(rv))
	if err != nil {
		return err
	}
	if taken || !after(rv, r.known) || c.Old != nil && after(c.Old.RV, rv) {
		// The resourceVersion belongs to another change, or is out of order.
		r.lose(rv)
		if c.Old != nil {
			r.lose(c.Old.RV)
		}
		return nil
	}
	return r.set(Key(rv), e)
}

func (r *Recorder) set(key []byte, e Entry) error {
	n, err := r.table.Put(key, e)
	r.head.Entries++
	r.head.Bytes += n
	return err
}

// drop deletes an entry of the table.
func (r *Recorder) drop(key []byte) error {
	n, err := r.table.Delete(key)
	r.head.Entries--
	r.head.Bytes -= n
	return err
}

// lose notes that a change at rv has no entry: End moves the horizon past it.
func (r *Recorder) lose(rv string) {
	if r.lost == "" {
		r.lost = higher(r.head.RV, r.next)
	}
	r.lost = higher(r.lost, rv)
}

// Rebind continues the log on another table of the same history, for example in the next
// transaction.
func (r *Recorder) Rebind(table Table) { r.table = table }

// End returns the head after the batch.
func (r *Recorder) End() Head {
	switch {
	case !r.Recording():
	case !decimal(r.next), after(r.known, r.next):
		r.head.Horizon = horizon(r.next, r.now)
		r.head.Attributes, r.head.AttributesSince = "", "" // rows past the new horizon may have been dropped
	case r.lost != "":
		r.head.Horizon = horizon(r.lost, r.now)
	}
	return r.head
}

// maxDigits is the maximum length of a resourceVersion that has a place in the order; see [Key].
const maxDigits = 255

func decimal(rv string) bool { return len(rv) <= maxDigits && object.IsDecimalRV(rv) }

// digits returns a number without leading zeros; empty if rv is zero or no number.
func digits(rv string) string {
	if !decimal(rv) {
		return ""
	}
	return strings.TrimLeft(rv, "0")
}

// before returns the number before rv, successor that after it; empty if there is none.
func before(rv string) string    { return shifted(rv, -1) }
func successor(rv string) string { return shifted(rv, 1) }

func shifted(rv string, by int64) string {
	if n, err := strconv.ParseInt(rv, 10, 63); err == nil && n+by >= 0 && decimal(rv) {
		return strconv.FormatInt(n+by, 10)
	}
	n, ok := new(big.Int).SetString(rv, 10)
	if !ok || !decimal(rv) || n.Add(n, big.NewInt(by)).Sign() < 0 {
		return ""
	}
	return n.String()
}

func after(a, b string) bool { return object.NewerRV(a, b) }

// higher returns the higher of two numbers; a if they can't be compared.
func higher(a, b string) string {
	if after(b, a) {
		return b
	}
	return a
}

// Key returns the key of a resourceVersion in a table: the number of digits, one byte, and the
// digits without leading zeros. Keys sort like the numbers. rv must be a number of at most
// maxDigits.
func Key(rv string) []byte {
	rv = strings.TrimLeft(rv, "0")
	return append([]byte{byte(len(rv))}, rv...)
}

// GapKey returns the key of the gap before a resourceVersion. It comes after the key of the change
// there.
func GapKey(rv string) []byte { return append(Key(rv), 0) }

// GapRV is the inverse of GapKey. ok is false if b is not the key of a gap.
func GapRV(b []byte) (rv string, ok bool) {
	if len(b) < 2 || b[len(b)-1] != 0 {
		return "", false
	}
	return RV(b[:len(b)-1])
}

// Within reports whether the state at rv is in the gap before the resourceVersion to.
func (e Entry) Within(rv, to string) bool { return e.Gap && after(rv, e.FirstRV) && after(to, rv) }

// RV is the inverse of Key, except for leading zeros. ok is false if b is not a key.
func RV(b []byte) (rv string, ok bool) {
	if len(b) == 0 || int(b[0]) != len(b)-1 {
		return "", false
	}
	if len(b) == 1 {
		return "0", true
	}
	return string(b[1:]), b[1] != '0' && object.IsDecimalRV(string(b[1:]))
}
