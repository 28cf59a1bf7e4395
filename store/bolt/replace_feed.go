package bolt

import (
	"fmt"
	"maps"
	"slices"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/history"
)

// recordGeneration copies the history of the current generation to the new one and adds the
// changes of the replacement, in transactions of bounded size. It returns the head of the new
// history, which is not visible until Commit switches to the new generation.
func (r *replacement) recordGeneration(known string, cp store.Checkpoint) (history.Head, error) {
	var head history.Head // of the current generation
	err := r.generations(head, func(now, before *generation) (err error) {
		// If the head is corrupt, it is empty and the history starts again at cp.
		head, _ = before.view.decodeHead(before.root.Get(format.KeyHistory))
		if err = head.Track(r.c.history, before.highestChange); err == nil {
			err = restartHistory(now.view.bucket(now.view.base), r.c.id, history.Head{}) // an earlier attempt may have left entries
		}
		return err
	})
	if err != nil {
		return head, err
	}
	if !head.Recording() {
		return history.Begin(cp, r.highest, r.c.history), nil
	}
	for _, name := range [][]byte{format.BucketFeed, format.BucketTombs} {
		if err := r.copyBucket(r.gen, [][]byte{name}); err != nil {
			return head, err
		}
	}
	var recorder *history.Recorder
	err = r.generations(head, func(now, _ *generation) error {
		recorder = history.NewRecorder(head, now.history, known, cp.RV, cp.Proven())
		return recorder.Skip(store.Gap{})
	})
	if err != nil {
		return head, err
	}
	keys := slices.Sorted(maps.Keys(r.touched))
	if err := r.record(keys, head, recorder, recorder.Upsert); err != nil {
		return head, err
	}
	placed := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return r.touched[key] == "" && !recorder.Replaced(key) })
	if err := r.record(placed, head, recorder, recorder.DeletePlaced); err != nil {
		return head, err
	}
	err = r.record(keys, head, recorder, recorder.DeleteUnplaced)
	return recorder.End(), err
}

// record calls add with the changes of keys, in transactions of bounded size.
func (r *replacement) record(keys []string, head history.Head, recorder *history.Recorder, add func(history.Change) error) error {
	for part := range slices.Chunk(keys, copyRecords) {
		err := r.generations(head, func(now, before *generation) error {
			recorder.Rebind(now.history)
			for _, key := range part {
				c, err := r.change(key, before, now)
				if err == nil {
					err = add(c)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// generations calls fn in a hidden transaction with the new generation and the current one, for a
// history with this head.
func (r *replacement) generations(head history.Head, fn func(now, before *generation) error) error {
	return r.hidden(func(tx *boltfile.Tx, b *boltfile.Bucket) error {
		var both [2]*generation
		for i := range uint64(len(both)) {
			name := format.GenName(r.gen - i)
			g, err := fileGeneration(r.c, tx, b.Bucket(name), name)
			if err != nil {
				return err
			}
			g.recordAttributes(head)
			both[i] = g
		}
		return fn(both[0], both[1])
	})
}

// change returns the change of a key from generation before to generation now.
func (r *replacement) change(key string, before, now *generation) (history.Change, error) {
	c := history.Change{Key: key, Deletion: r.touched[key]}
	if b := now.objects.Get([]byte(key)); b != nil {
		rec, err := format.DecodeRecord([]byte(key), b)
		if err != nil {
			return c, now.view.corrupt(key, err)
		}
		if c.New, err = now.decodeVersion(key, rec); err != nil {
			return c, err
		}
	}
	stored := before.objects.Get([]byte(key))
	if stored == nil {
		return c, nil
	}
	rec, err := format.DecodeRecord([]byte(key), stored)
	if err == nil {
		c.Old, err = before.decodeVersion(key, rec)
	}
	if err != nil {
		c.Old, err = now.unreadable(key, c.New)
		return c, err
	}
	c.Bury = func(rv string) (int64, error) { return now.history.putTombstone(rv, stored) }
	return c, nil
}

// decodeVersion returns the version of a record. It decodes the record if the history records
// attributes.
func (g *generation) decodeVersion(key string, rec format.Record) (_ *history.Version, err error) {
	var o *object.Object
	if g.attributes != nil {
		if o, err = g.view.decode(key, rec); err != nil {
			return nil, err
		}
	}
	return g.version(rec, o), nil
}
