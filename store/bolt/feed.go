package bolt

import (
	"bytes"
	"iter"
	"time"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/internal/history"
)

// feedTable is the history of a generation, to write to.
type feedTable struct {
	feed, tombstones table
}

var _ history.Table = feedTable{}

// Get implements [history.Table]. What is damaged is as good as not there: its
// number is given to another change.
func (t feedTable) Get(rv string) (history.Entry, bool, error) {
	key := history.Key(rv)
	b := t.feed.Get(key)
	if b == nil {
		return history.Entry{}, false, nil
	}
	_, e, err := format.DecodeFeedEntry(key, b)
	return e, err == nil, nil
}

// Put implements [history.Table].
func (t feedTable) Put(rv string, e history.Entry) (int64, error) {
	key := history.Key(rv)
	b := format.EncodeFeedEntry(key, e)
	return format.FeedBytes(key, b, nil), t.feed.Put(key, b)
}

// Delete implements [history.Table]. What a deletion keeps goes with its entry.
func (t feedTable) Delete(rv string) (int64, error) {
	key := history.Key(rv)
	b, last := t.feed.Get(key), t.tombstones.Get(key)
	n := format.FeedBytes(key, b, last)
	if last != nil {
		if err := t.tombstones.Delete(key); err != nil {
			return 0, err
		}
	}
	return n, t.feed.Delete(key)
}

// putTombstone keeps the record of what was deleted.
func (t feedTable) putTombstone(rv string, rec []byte) (int64, error) {
	key := history.Key(rv)
	return int64(len(key) + len(rec)), t.tombstones.Put(key, bytes.Clone(rec))
}

func (v *view) decodeHead(raw []byte) (head history.Head, err error) {
	if head, err = v.db.meta.history(v.id, raw); err != nil {
		return head, corruptValue(v.db.path, v.id, format.KeyHistory, err)
	}
	return head, nil
}

// openLog lets what is written from now on be recorded, where the generation has a
// history. known is the resourceVersion of the checkpoint before, next the checkpoint
// after.
func (g *generation) openLog(known string, next store.Checkpoint) error {
	head, err := g.view.decodeHead(g.root.Get(format.KeyHistory))
	g.head = head
	if err != nil {
		// The history is not worth a collection that takes no changes: it begins anew.
		if head, err = g.recounted(next); err != nil {
			return err
		}
	}
	if log := history.NewLog(head, g.history, known, next.RV, next.Proven()); log.Recording() {
		g.log = log
	}
	return nil
}

// recounted is the head of a history that begins at a checkpoint, with what is left
// of another one to be trimmed.
func (g *generation) recounted(cp store.Checkpoint) (history.Head, error) {
	head := history.Begin(cp.RV, "", cp.Proven())
	for _, name := range [][]byte{format.BucketFeed, format.BucketTombs} {
		cur, err := g.view.cursor(g.view.path(name))
		if err != nil {
			return head, err
		}
		for k, b := cur.Seek(nil); k != nil; k, b = cur.Next(k) {
			head.Bytes += format.FeedBytes(k, b, nil)
			if string(name) == string(format.BucketFeed) {
				head.Entries++
			}
		}
	}
	return head, nil
}

// note remembers a write for the log. stored is the record that it takes the place
// of, nil for none, and old what that says unless it is damaged.
func (g *generation) note(w write, stored []byte, old format.Record, damaged bool) error {
	c := history.Change{Key: w.key, Deletion: w.deletion}
	if !w.delete {
		c.New = &history.Version{UID: w.rec.Uid, RV: w.rec.Rv}
	}
	switch {
	case damaged:
		var err error
		if c.Old, err = g.unreadable(w.key, c.New); err != nil {
			return err
		}
	case stored != nil:
		c.Old = &history.Version{UID: old.Uid, RV: old.Rv}
		c.Bury = func(rv string) (int64, error) { return g.history.putTombstone(rv, stored) }
	}
	g.changes = append(g.changes, c)
	return nil
}

// unreadable is what is known of an object whose record is damaged: its
// resourceVersion, if the feed has it. Whose name now is now's, it is taken to be
// the same.
func (g *generation) unreadable(key string, now *history.Version) (*history.Version, error) {
	rv, err := g.findEntry(key)
	old := &history.Version{RV: rv}
	if now != nil {
		old.UID = now.UID
	}
	return old, err
}

// findEntry looks for the entry of a live object by its key; empty for none.
func (g *generation) findEntry(key string) (rv string, err error) {
	cur, err := g.view.cursor(g.view.path(format.BucketFeed))
	if err != nil {
		return "", err
	}
	for k, b := cur.Seek(nil); k != nil; k, b = cur.Next(k) {
		if at, e, err := format.DecodeFeedEntry(k, b); err == nil && !e.Deleted && e.Key == key {
			return at, nil
		}
	}
	return "", nil
}

// closeLog writes what was recorded.
func (g *generation) closeLog() error {
	if g.log == nil {
		return nil
	}
	if err := g.log.Add(g.changes); err != nil {
		return err
	}
	head := g.log.End()
	if head == g.head {
		return nil
	}
	if err := putJSON(g.root, g.c.id, format.KeyHistory, head); err != nil {
		return err
	}
	g.c.db.meta.setHistory(g.c.id, g.root.Get(format.KeyHistory), head)
	return nil
}

// createHistory makes the history of a new generation, which a complete list is to
// begin.
func createHistory(gen *boltfile.Bucket, id string, head history.Head) error {
	for _, name := range [][]byte{format.BucketFeed, format.BucketTombs} {
		if _, err := gen.CreateBucket(name); err != nil {
			return err
		}
	}
	return putJSON(gen, id, format.KeyHistory, head)
}

// restartHistory begins a generation's history anew.
func restartHistory(gen *boltfile.Bucket, id string, head history.Head) error {
	for _, name := range [][]byte{format.BucketFeed, format.BucketTombs} {
		if err := gen.DeleteBucket(name); err != nil {
			return err
		}
	}
	return createHistory(gen, id, head)
}

// Horizon returns where the history begins.
func (v *view) Horizon() (h store.Horizon, err error) {
	head, err := v.head()
	return head.Seen(v.state), err
}

func (v *view) head() (head history.Head, err error) {
	err = v.read(func() (err error) {
		head, err = v.decodeHead(v.lookup(v.path(), format.KeyHistory))
		return err
	})
	return head, err
}

// Changes iterates over what changed after since.
func (v *view) Changes(since string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		head, err := v.head()
		if err == nil {
			err = head.Since(v.id, v.state, since)
		}
		if err != nil {
			yield(store.Event{}, err)
			return
		}
		if !head.Recording() {
			return
		}
		for e, err := range scan(v, v.path(format.BucketFeed), "", string(history.Key(since)), v.event) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// event makes an event of an entry of the feed.
func (v *view) event(k, b []byte) (store.Event, error) {
	rv, entry, err := format.DecodeFeedEntry(k, b)
	if err != nil {
		return store.Event{}, v.corrupt("", err)
	}
	e := store.Event{
		RV: rv, Time: time.Unix(entry.Time, 0).UTC(), Key: entry.Key, Deleted: entry.Deleted, FirstRV: entry.FirstRV,
	}
	if entry.FirstTime != 0 {
		e.FirstTime = time.Unix(entry.FirstTime, 0).UTC()
	}
	var rec []byte
	if e.Deleted {
		rec = v.lookup(v.path(format.BucketTombs), k)
	} else {
		rec = v.lookup(v.path(format.BucketObjects), []byte(e.Key))
	}
	if rec == nil {
		return e, v.corrupt(e.Key, format.ErrFeedEntry)
	}
	if e.Object, err = v.object([]byte(e.Key), rec); err != nil {
		return e, err
	}
	if cmp, ok := object.CompareRV(e.Object.GetResourceVersion(), rv); !e.Deleted && (!ok || cmp != 0) {
		return e, v.corrupt(e.Key, format.ErrFeedEntry)
	}
	return e, nil
}
