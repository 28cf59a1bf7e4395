package memory

import (
	"errors"
	"iter"
	"time"

	"github.com/tidwall/btree"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/internal/history"
)

// feed is the history of a collection, by [history.Key].
type feed struct {
	head    history.Head
	entries btree.Map[string, change]
}

// change is an entry of a feed.
type change struct {
	rv string
	history.Entry
	last *object.Object // what a deletion took away
}

var _ history.Table = (*feed)(nil)

func (f *feed) copy() feed { return feed{f.head, *f.entries.Copy()} }

// Get implements [history.Table].
func (f *feed) Get(rv string) (history.Entry, bool, error) {
	c, ok := f.entries.Get(string(history.Key(rv)))
	return c.Entry, ok, nil
}

// Put implements [history.Table].
func (f *feed) Put(rv string, e history.Entry) (int64, error) {
	c := change{rv: rv, Entry: e}
	f.entries.Set(string(history.Key(rv)), c)
	return c.bytes(), nil
}

// Delete implements [history.Table].
func (f *feed) Delete(rv string) (int64, error) {
	c, _ := f.entries.Delete(string(history.Key(rv)))
	return c.bytes(), nil
}

// bury keeps the last object of a deletion.
func (f *feed) bury(rv string, last *object.Object) (int64, error) {
	c, _ := f.entries.Get(string(history.Key(rv)))
	before := c.bytes()
	c.last = last
	f.entries.Set(string(history.Key(rv)), c)
	return c.bytes() - before, nil
}

func (c change) bytes() int64 {
	n := len(c.rv) + len(c.Key) + len(c.FirstRV) + 16
	if c.last != nil {
		n += c.last.Size()
	}
	return int64(n)
}

// record takes a batch into the feed: changes, the objects that they took the place
// of, and the checkpoints before and after.
func (f *feed) record(changes []store.Change, old []*object.Object, known string, next store.Checkpoint) error {
	log := history.NewLog(f.head, f, known, next.RV, next.Proven())
	if log.Recording() {
		told := make([]history.Change, len(changes))
		for i, ch := range changes {
			told[i] = history.Change{
				Key: ch.Key, Old: version(old[i]), New: version(ch.Object), Deletion: ch.RV,
				Bury: func(rv string) (int64, error) { return f.bury(rv, old[i]) },
			}
		}
		if err := log.Add(told); err != nil {
			return err
		}
	}
	f.head = log.End()
	f.trim(next.Proven().Add(-store.DefaultHistoryRetention))
	return nil
}

// trim takes out what is older than cutoff or too much.
func (f *feed) trim(cutoff time.Time) {
	for {
		key, c, ok := f.entries.Min()
		if !ok || !f.head.Due(c.rv, c.Entry, cutoff.Unix(), store.DefaultHistoryBytes) {
			return
		}
		f.entries.Delete(key)
		f.head.Trim(c.rv, c.Entry, c.bytes())
	}
}

// version is what a history knows an object by; nil where there is none.
func version(o *object.Object) *history.Version {
	if o == nil {
		return nil
	}
	return &history.Version{UID: string(o.GetUID()), RV: o.GetResourceVersion()}
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
		v.feed.entries.Ascend(string(history.Key(since)), func(key string, c change) bool {
			if key == string(history.Key(since)) {
				return true
			}
			if !yield(v.event(c), nil) {
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

func (v *view) event(c change) store.Event {
	e := store.Event{
		RV: c.rv, Time: time.Unix(c.Time, 0).UTC(), Key: c.Key, Object: c.last, Deleted: c.Deleted, FirstRV: c.FirstRV,
	}
	if c.FirstTime != 0 {
		e.FirstTime = time.Unix(c.FirstTime, 0).UTC()
	}
	if !c.Deleted {
		e.Object, _ = v.objects.Get(c.Key)
	}
	return e
}
