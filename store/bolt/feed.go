package bolt

import (
	"bytes"
	"iter"
	"time"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/history"
)

// feedTable reads and writes the history of a generation.
type feedTable struct {
	feed, tombstones table
}

var _ history.Table = feedTable{}

// Get implements [history.Table]. It treats a corrupt entry as missing: the next change at its
// resourceVersion overwrites it.
func (t feedTable) Get(key []byte) (history.Entry, bool, error) {
	b := t.feed.Get(key)
	if b == nil {
		return history.Entry{}, false, nil
	}
	_, e, err := format.DecodeFeedEntry(key, b)
	return e, err == nil, nil
}

func (t feedTable) Put(key []byte, e history.Entry) (int64, error) {
	b := format.EncodeFeedEntry(key, e)
	return format.FeedBytes(key, b, nil), t.feed.Put(key, b)
}

// Delete implements [history.Table]. It deletes the tombstone, if any, with the entry.
func (t feedTable) Delete(key []byte) (int64, error) {
	b, last := t.feed.Get(key), t.tombstones.Get(key)
	n := format.FeedBytes(key, b, last)
	if last != nil {
		if err := t.tombstones.Delete(key); err != nil {
			return 0, err
		}
	}
	return n, t.feed.Delete(key)
}

// putTombstone stores the record of an object that was deleted at rv, and returns the bytes
// that it adds to the history.
func (t feedTable) putTombstone(rv string, rec []byte) (int64, error) {
	key := history.Key(rv)
	return int64(len(key) + len(rec)), t.tombstones.Put(key, bytes.Clone(rec))
}

func (v *view) decodeHead(raw []byte) (history.Head, error) {
	return decodeOnce[history.Head](v, format.KeyHistory, raw)
}

// openLog starts to record writes, if the generation has a history. known is the resourceVersion of
// the checkpoint before the writes, next the checkpoint after them.
func (g *generation) openLog(known string, next store.Checkpoint) error {
	head, err := g.view.decodeHead(g.root.Get(format.KeyHistory))
	g.head = head
	if err != nil {
		// A collection must take changes even if its history is corrupt: restart the history.
		if head, err = g.recounted(next); err != nil {
			return err
		}
	}
	if err := head.Track(g.c.history, g.highestChange); err != nil {
		return err
	}
	if recorder := history.NewRecorder(head, g.history, known, next.RV, next.Proven()); recorder.Recording() {
		g.recorder = recorder
		g.recordAttributes(head)
	}
	return nil
}

// recordAttributes records the attributes that a history with this head has.
func (g *generation) recordAttributes(head history.Head) {
	if g.attributes = g.c.history; head.Attributes == "" {
		g.attributes = nil
	}
}

// recounted returns the head of a history that begins at cp. The head counts the remaining entries
// of the previous history, which trim removes later.
func (g *generation) recounted(cp store.Checkpoint) (history.Head, error) {
	cp.ListReason = "" // not the beginning of the first history
	head := history.Begin(cp, "", nil)
	count := func(k, b []byte) { head.Bytes += format.FeedBytes(k, b, nil) }
	err := g.view.all(g.view.path(format.BucketTombs), count)
	if err == nil {
		err = g.view.all(g.view.path(format.BucketFeed), func(k, b []byte) { count(k, b); head.Entries++ })
	}
	return head, err
}

// highestChange returns the highest resourceVersion in the feed, empty for none.
func (g *generation) highestChange() (rv string, err error) {
	err = g.view.all(g.view.path(format.BucketFeed), func(k, _ []byte) {
		if at, ok := history.RV(k); ok {
			rv = at
		}
	})
	return rv, err
}

// note adds a write to the changes for the recorder. stored is the record that the write replaces, nil
// for none. old and oldObject are its decoded form unless the record is corrupt; oldObject may be
// nil if the history records no attributes.
func (g *generation) note(w write, stored []byte, old format.Record, oldObject *object.Object, corrupt bool) error {
	c := history.Change{Key: w.key, Deletion: w.deletion}
	var err error
	switch {
	case w.delete:
	case w.object != nil:
		c.New = g.version(w.rec, w.object)
	default:
		if c.New, err = g.decodeVersion(w.key, w.rec); err != nil {
			return err
		}
	}
	switch {
	case corrupt:
		if c.Old, err = g.unreadable(w.key, c.New); err != nil {
			return err
		}
	case stored != nil:
		c.Old = g.version(old, oldObject)
		c.Bury = func(rv string) (int64, error) { return g.history.putTombstone(rv, stored) }
	}
	g.changes = append(g.changes, c)
	return nil
}

// version returns the version of a record with its object, which may be nil if the history records no
// attributes.
func (g *generation) version(rec format.Record, o *object.Object) *history.Version {
	v := &history.Version{UID: rec.UID, RV: rec.RV}
	if g.attributes != nil {
		v.Attributes = g.attributes.Values(o)
	}
	return v
}

// unreadable returns the version of an object whose record is corrupt: its resourceVersion, if
// the feed has an entry for it. If a new object, now, takes over the key, assume the same UID.
func (g *generation) unreadable(key string, now *history.Version) (*history.Version, error) {
	rv, err := g.findEntry(key)
	old := &history.Version{RV: rv, Unreadable: true}
	if now != nil {
		old.UID = now.UID
	}
	return old, err
}

// findEntry returns the resourceVersion of a live object's entry in the feed, empty for none.
func (g *generation) findEntry(key string) (rv string, err error) {
	err = g.view.all(g.view.path(format.BucketFeed), func(k, b []byte) {
		if at, e, err := format.DecodeFeedEntry(k, b); err == nil && !e.Deleted && e.Key == key {
			rv = at
		}
	})
	return rv, err
}

// closeLog writes the recorded changes, the gap, nil for none, and the head of the history.
func (g *generation) closeLog(gap *store.Gap) error {
	if g.recorder == nil {
		return nil
	}
	if err := g.recorder.Add(g.changes, gap); err != nil {
		return err
	}
	head := g.recorder.End()
	if head == g.head {
		return nil
	}
	if err := putJSON(g.root, g.c.id, format.KeyHistory, head); err != nil {
		return err
	}
	keepDecoded(g.view, format.KeyHistory, g.root.Get(format.KeyHistory), head) // for the next batch
	return nil
}

// beginHistory returns the head of the history after a complete list, see [history.Begin].
func (c *collection) beginHistory(cp store.Checkpoint, highest string) history.Head {
	if c.db.opts.NoHistory {
		return history.None(cp)
	}
	return history.Begin(cp, highest, c.history)
}

// createHistory creates the buckets and the head of a generation's history.
func createHistory(gen *boltfile.Bucket, id string, head history.Head) error {
	for _, name := range [][]byte{format.BucketFeed, format.BucketTombs} {
		if _, err := gen.CreateBucket(name); err != nil {
			return err
		}
	}
	return putJSON(gen, id, format.KeyHistory, head)
}

// restartHistory replaces a generation's history by an empty one.
func restartHistory(gen *boltfile.Bucket, id string, head history.Head) error {
	for _, name := range [][]byte{format.BucketFeed, format.BucketTombs} {
		if err := gen.DeleteBucket(name); err != nil {
			return err
		}
	}
	return createHistory(gen, id, head)
}

func (v *view) Horizon() (h store.Horizon, err error) {
	head, err := v.head()
	return head.Seen(v.state), err
}

func (v *view) head() (head history.Head, err error) {
	err = v.read(func() (err error) {
		head, err = v.decodeHead(v.lookup(v.base, format.KeyHistory))
		return err
	})
	return head, err
}

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
		event := func(k, b []byte) (store.Event, error) { return v.event(head, k, b) }
		for e, err := range scan(v, v.path(format.BucketFeed), "", string(history.Key(since)), event) {
			if gap := err == nil && e.RV == ""; !gap && !yield(e, err) {
				return
			}
		}
	}
}

func (v *view) Skips(rv string) (bool, error) {
	within := func(k, b []byte) (bool, error) {
		to, ok := history.GapRV(k)
		if !ok {
			return false, nil
		}
		_, e, err := format.DecodeFeedEntry(k, b)
		if err != nil {
			return false, v.corrupt("", err)
		}
		return e.Within(rv, to), nil
	}
	if !object.IsDecimalRV(rv) {
		return false, nil
	}
	for found, err := range scan(v, v.path(format.BucketFeed), "", string(history.Key(rv)), within) {
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// event returns the event of a feed entry, the zero Event for a gap. An entry without its record, or
// with the record of another resourceVersion, is corrupt.
func (v *view) event(head history.Head, k, b []byte) (store.Event, error) {
	rv, entry, err := format.DecodeFeedEntry(k, b)
	if err != nil {
		return store.Event{}, v.corrupt("", err)
	}
	if entry.Gap {
		return store.Event{}, nil
	}
	e := store.Event{
		RV: rv, Time: time.Unix(entry.Time, 0).UTC(), Key: entry.Key, Deleted: entry.Deleted, FirstRV: entry.FirstRV,
		Attributes: head.Of(entry),
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
