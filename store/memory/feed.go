package memory

import (
	"errors"
	"iter"
	"math"
	"time"

	"github.com/tidwall/btree"

	"github.com/snapcache/snapcache/internal/history"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// feed is the history of a collection: its changes by [history.Key], its gaps by [history.GapKey].
type feed struct {
	head    history.Head
	entries *btree.Map[string, *feedEntry]
	now     time.Time // of the batch that is recorded, with the monotonic reading

	attributes *store.Index // that the history records, nil for none
}

// feedEntry is a change, or a gap. Snapshots share it, so it is not changed once a snapshot has it.
type feedEntry struct {
	rv    string
	added time.Time // with the monotonic reading
	history.Entry
	last *object.Object // of a deletion: the deleted object
}

var _ history.Table = (*feed)(nil)

func newFeed(head history.Head, attributes *store.Index) feed {
	return feed{head: head, entries: btree.NewMap[string, *feedEntry](degree), attributes: attributes}
}

func feedKey(rv string) string { return string(history.Key(rv)) }

func (f *feed) copy() feed {
	return feed{head: f.head, entries: f.entries.Copy(), attributes: f.attributes}
}

// Get implements [history.Table].
func (f *feed) Get(key []byte) (history.Entry, bool, error) {
	e, ok := f.entries.Get(string(key))
	if !ok {
		return history.Entry{}, false, nil
	}
	return e.Entry, true, nil
}

// Put implements [history.Table].
func (f *feed) Put(key []byte, e history.Entry) (int64, error) {
	rv, ok := history.RV(key)
	if !ok {
		rv, _ = history.GapRV(key)
	}
	entry := &feedEntry{rv: rv, added: f.now, Entry: e}
	f.entries.Load(string(key), entry) // Load is fast at the end, where nearly all entries go
	return entry.bytes(), nil
}

// Delete implements [history.Table].
func (f *feed) Delete(key []byte) (int64, error) {
	e, ok := f.entries.Delete(string(key))
	if !ok {
		return 0, nil
	}
	return e.bytes(), nil
}

func (e *feedEntry) bytes() int64 {
	n := len(e.rv) + len(e.Key) + len(e.FirstRV) + 16
	for _, row := range e.Rows {
		n += len(row.RV) + 40
		for _, v := range row.Values {
			n += len(v) + 16
		}
	}
	if e.last != nil {
		n += e.last.Size()
	}
	return int64(n)
}

// change converts a change that has replaced old for the history.
func (f *feed) change(ch store.Change, old *object.Object) history.Change {
	c := history.Change{Key: ch.Key, Old: f.version(old), New: f.version(ch.Object), Deletion: ch.RV}
	if old != nil && (ch.Object == nil || ch.Object.GetUID() != old.GetUID()) {
		c.Bury = func(rv string) (int64, error) {
			e, _ := f.entries.Get(feedKey(rv)) // new in this batch: no snapshot has it
			e.last = old
			return int64(old.Size()), nil
		}
	}
	return c
}

func (f *feed) version(o *object.Object) *history.Version {
	if o == nil {
		return nil
	}
	v := &history.Version{UID: string(o.GetUID()), RV: o.GetResourceVersion()}
	if f.attributes != nil && f.head.Attributes != "" {
		v.Attributes = f.attributes.Values(o)
	}
	return v
}

func (f *feed) highest() (rv string, err error) {
	f.entries.Reverse(func(_ string, e *feedEntry) bool {
		rv = e.rv
		return e.Gap
	})
	return rv, nil
}

// begin prepares the feed for a batch, before its changes.
func (f *feed) begin() error { return f.head.Track(f.attributes, f.highest) }

// record adds the changes of a batch, which moves the checkpoint from known to next. gap is nil for
// none.
func (f *feed) record(changes []history.Change, gap *store.Gap, known string, next *store.Checkpoint) error {
	f.now = time.Now()
	log := history.NewLog(f.head, f, known, next.RV, next.Proven())
	if err := log.Add(changes, gap); err != nil {
		return err
	}
	f.head = log.End()
	f.trim()
	return nil
}

// trim deletes the entries that are older than the retention, or past the size limit. Their dates do not
// count: the clock may have been wrong, or be wrong now.
func (f *feed) trim() {
	for {
		_, e, ok := f.entries.Min()
		old := ok && f.now.Sub(e.added) > store.DefaultHistoryRetention
		if !ok || !old && !f.head.Due(e.rv, e.Entry, math.MinInt64, store.DefaultHistoryBytes) {
			return
		}
		f.entries.PopMin()
		f.head.Trim(e.rv, e.Entry, e.bytes())
	}
}

// Horizon implements [store.View].
func (v *view) Horizon() (store.Horizon, error) {
	if err := v.usable(); err != nil {
		return store.Horizon{}, err
	}
	return v.feed.head.Seen(v.state), nil
}

// Changes implements [store.View].
func (v *view) Changes(since string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		err := errors.Join(v.usable(), v.feed.head.Since(v.info.ID, v.state, since))
		if err == nil && v.feed.head.Recording() {
			after := feedKey(since)
			v.feed.entries.Ascend(after, func(key string, e *feedEntry) bool {
				if key != after && !e.Gap && !yield(v.event(e), nil) {
					return false
				}
				err = v.usable() // yield may have closed the view
				return err == nil
			})
		}
		if err != nil {
			yield(store.Event{}, err)
		}
	}
}

// Skips implements [store.View].
func (v *view) Skips(rv string) (found bool, err error) {
	if err = v.usable(); err == nil && object.IsDecimalRV(rv) {
		v.feed.entries.Ascend(feedKey(rv), func(_ string, e *feedEntry) bool {
			found = e.Within(rv, e.rv)
			return !found
		})
	}
	return found, err
}

func (v *view) event(c *feedEntry) store.Event {
	e := store.Event{
		RV: c.rv, Time: time.Unix(c.Time, 0).UTC(), Key: c.Key, Object: c.last, Deleted: c.Deleted, FirstRV: c.FirstRV,
		Attributes: v.feed.head.Of(c.Entry),
	}
	if c.FirstTime != 0 {
		e.FirstTime = time.Unix(c.FirstTime, 0).UTC()
	}
	if r, ok := v.keys.Get(c.Key); ok && !c.Deleted {
		e.Object = r.object
	}
	return e
}
