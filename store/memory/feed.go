package memory

import (
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/btree"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/internal/history"
)

// feed is the history of a collection, in the order of resourceVersions.
type feed struct {
	head    history.Head
	entries *btree.BTreeG[place]

	newest *change // the one that was put last

	// Room for the changes of a batch, empty in between.
	told     []history.Change
	versions []history.Version
}

// place is where a feed has a change. Nearly all resourceVersions fit in n, so that
// nothing more has to be read to find one.
type place struct {
	n uint64 // the resourceVersion, math.MaxUint64 where it is higher
	*change
}

// change is an entry of a feed. Snapshots share it.
type change struct {
	rv string
	history.Entry
	last *object.Object // what a deletion took away
}

var _ history.Table = (*feed)(nil)

func newFeed(head history.Head) feed {
	return feed{head: head, entries: btree.NewBTreeGOptions(placeBefore, btree.Options{NoLocks: true})}
}

func placeBefore(a, b place) bool {
	if a.n != b.n || a.n < math.MaxUint64 {
		return a.n < b.n
	}
	cmp, _ := object.CompareRV(a.rv, b.rv)
	return cmp < 0
}

// at returns where a change of that resourceVersion, a number, is or would be.
func at(rv string) place {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil || n == math.MaxUint64 {
		return place{math.MaxUint64, &change{rv: rv}}
	}
	return place{n: n}
}

func (f *feed) copy() feed { return feed{head: f.head, entries: f.entries.Copy()} }

// Get implements [history.Table].
func (f *feed) Get(rv string) (history.Entry, bool, error) {
	p, ok := f.entries.Get(at(rv))
	if !ok {
		return history.Entry{}, false, nil
	}
	return p.Entry, true, nil
}

// Put implements [history.Table].
func (f *feed) Put(rv string, e history.Entry) (int64, error) {
	f.newest = &change{rv: rv, Entry: e}
	p := place{at(rv).n, f.newest}
	f.entries.Load(p) // nearly always behind all others
	return p.bytes(), nil
}

// Delete implements [history.Table].
func (f *feed) Delete(rv string) (int64, error) {
	p, ok := f.entries.Delete(at(rv))
	if !ok {
		return 0, nil
	}
	return p.bytes(), nil
}

// bury keeps the last object of the deletion that was put just now, which is in no
// snapshot yet.
func (f *feed) bury(last *object.Object) (int64, error) {
	f.newest.last = last
	return int64(last.Size()), nil
}

func (c *change) bytes() int64 {
	n := len(c.rv) + len(c.Key) + len(c.FirstRV) + 16
	if c.last != nil {
		n += c.last.Size()
	}
	return int64(n)
}

// record takes a batch into the feed: changes, the objects that they took the place
// of, and the checkpoints before and after.
func (f *feed) record(changes []store.Change, old []*object.Object, known string, next store.Checkpoint) error {
	proven := next.Proven()
	log := history.NewLog(f.head, f, known, next.RV, proven)
	if log.Recording() {
		if err := log.Add(f.tell(changes, old)); err != nil {
			return err
		}
		clear(f.told)
		clear(f.versions)
	}
	f.head = log.End()
	f.trim(proven.Add(-store.DefaultHistoryRetention).Unix())
	return nil
}

// tell returns changes as a history wants them. They are good until the next call.
func (f *feed) tell(changes []store.Change, old []*object.Object) []history.Change {
	f.told, f.versions = f.told[:0], slices.Grow(f.versions[:0], 2*len(changes))
	for i, ch := range changes {
		last := old[i]
		c := history.Change{Key: ch.Key, Old: f.version(last), New: f.version(ch.Object), Deletion: ch.RV}
		if last != nil && (ch.Object == nil || ch.Object.GetUID() != last.GetUID()) {
			c.Bury = func(string) (int64, error) { return f.bury(last) }
		}
		f.told = append(f.told, c)
	}
	return f.told
}

// version is what a history knows an object by; nil where there is none.
func (f *feed) version(o *object.Object) *history.Version {
	if o == nil {
		return nil
	}
	f.versions = append(f.versions, history.Version{UID: string(o.GetUID()), RV: o.GetResourceVersion()})
	return &f.versions[len(f.versions)-1]
}

// trim takes out what is older than cutoff, in seconds, or too much.
func (f *feed) trim(cutoff int64) {
	for {
		p, ok := f.entries.Min()
		if !ok || !f.head.Due(p.rv, p.Entry, cutoff, store.DefaultHistoryBytes) {
			return
		}
		f.entries.PopMin()
		f.head.Trim(p.rv, p.Entry, p.bytes())
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
		err := errors.Join(v.usable(), v.feed.head.Since(v.c.id, v.state, since))
		if err != nil {
			yield(store.Event{}, err)
			return
		}
		if !v.feed.head.Recording() {
			return
		}
		after := at(since)
		v.feed.entries.Ascend(after, func(p place) bool {
			if !placeBefore(after, p) {
				return true
			}
			if !yield(v.event(p.change), nil) {
				return false
			}
			err = v.usable() // yield may have closed the view
			return err == nil
		})
		if err != nil {
			yield(store.Event{}, err)
		}
	}
}

func (v *view) event(c *change) store.Event {
	e := store.Event{
		RV: c.rv, Time: time.Unix(c.Time, 0).UTC(), Key: c.Key, Object: c.last, Deleted: c.Deleted, FirstRV: c.FirstRV,
	}
	if c.FirstTime != 0 {
		e.FirstTime = time.Unix(c.FirstTime, 0).UTC()
	}
	if !c.Deleted {
		e.Object, _ = v.objects.get(c.Key)
	}
	return e
}
