package bolt

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// A collection's first dictionary is made of its first objects. They may be few, or unlike the
// objects that follow, and the workload of a cluster changes over the years. So the
// compression ratio is measured, window by window. If it is worse in a window than the
// dictionary's best, samples are taken during the next two windows: a challenger is made of the
// samples of the first window, tried on those of the second, and replaces the dictionary if it
// saves enough there. The trial needs another window: a list goes through one namespace after
// the other, and on the next namespace a challenger made of this one may be no better than the
// dictionary. The first dictionary of a process is challenged once in any case: its best ratio
// is unknown.
const (
	// dictBytes is the size of a collection's dictionary, dictMinObjects the least number of
	// objects to make one of. Objects of one kind have keys and boilerplate in common, which
	// they can refer to in a dictionary.
	dictBytes      = 64 << 10
	dictMinObjects = 8

	// windowBytes is how many bytes of JSON a window has: some hundred pods.
	windowBytes = 1 << 20

	// worseRatio is how much worse the ratio of a window must be for a challenger. Windows of
	// 20,000 pods or 200,000 leases differ from each other by less than a tenth.
	worseRatio = 1.2

	// betterRatio is the largest share of the dictionary's compressed bytes with which a
	// challenger replaces it. A new dictionary costs 64 KiB of the file and a fold; made of
	// objects in random order, instead of the first ones of a list, it saves three to six
	// percent.
	betterRatio = 0.85

	// trainingRest is how many bytes of JSON are compressed between two challenges.
	trainingRest = 8 << 20

	// maxDicts bounds the dictionaries of a collection. At the bound, those that no record
	// refers to are deleted; if there are none, no new dictionary is stored.
	maxDicts = 4
)

// training decides when a collection gets a dictionary, the first or a better one. It has a
// lock of its own: the collection's writer trains, while a flush may compress in another
// goroutine.
type training struct {
	mu sync.Mutex

	raw, packed int64   // bytes of the window, before and after compression
	best        float64 // the lowest packed/raw of a window with the dictionary; 0 if unknown
	rest        int64   // raw bytes until the next challenge
	skipped     int64   // raw bytes since the newest sample

	// learn has samples of the first objects while there is no dictionary, later of the window
	// that a challenger is made of; tryOut has those of the window that it is tried on.
	phase  phase
	learn  samples
	tryOut samples
}

// phase is the use of a window's samples.
type phase int

const (
	measuring phase = iota
	learning
	tryingOut
)

// samples are objects of at most dictBytes together.
type samples struct {
	objects []*object.Object
	bytes   int
}

func (s *samples) add(o *object.Object) bool {
	// An object as long as a dictionary would leave no room for others.
	if o.Size() < format.CompressAbove || o.Size() > dictBytes/2 || s.bytes+o.Size() > dictBytes {
		return false
	}
	s.objects, s.bytes = append(s.objects, o), s.bytes+o.Size()
	return true
}

// remove drops the sample at key, if there is one.
func (s *samples) remove(key string) {
	i := slices.IndexFunc(s.objects, func(o *object.Object) bool { return o.Key() == key })
	if i >= 0 {
		s.bytes -= s.objects[i].Size()
		s.objects = slices.Delete(s.objects, i, i+1)
	}
}

// encoded records that an object of size bytes was compressed to packed bytes. It calls sample
// if it needs the object, which may be nil.
func (t *training) encoded(size, packed int, sample func() *object.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raw += int64(size)
	t.packed += int64(packed)
	t.rest -= int64(size)
	into := &t.learn
	switch t.phase {
	case measuring:
		return
	case tryingOut:
		into = &t.tryOut
	}
	if t.skipped += int64(size); t.skipped < int64(size)*windowBytes/dictBytes {
		return
	}
	if o := sample(); o != nil && into.add(o) {
		t.skipped = 0
	}
}

// first collects objects for the first dictionary, from batches of any size. It returns them
// when they are enough, nil until then.
func (t *training) first(changes []store.Change) []*object.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rest > 0 {
		return nil
	}
	var batch []*object.Object
	for _, ch := range changes {
		if ch.Object != nil && ch.Object.Size() >= format.CompressAbove {
			batch = append(batch, ch.Object)
		}
	}
	if len(batch) >= dictMinObjects {
		t.adopts()
		return batch
	}
	for _, o := range batch {
		// Keep only the newest state of an object that changes often, so that the dictionary is
		// not made of that object alone.
		t.learn.remove(o.Key())
		t.learn.add(o)
	}
	if len(t.learn.objects) < dictMinObjects {
		return nil
	}
	objects := t.learn.objects
	t.adopts()
	return objects
}

// adopts drops the samples and starts the rest until the next challenge.
func (t *training) adopts() {
	t.forget()
	t.rest = trainingRest
}

// window ends a window that is full. If it is time for a challenger, ok is true, learn has the
// samples to make it of, and tryOut those to try it on.
func (t *training) window() (learn, tryOut samples, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.full() {
		return learn, tryOut, false
	}
	learn, tryOut = t.learn, t.tryOut
	t.adopts()
	return learn, tryOut, len(learn.objects) >= dictMinObjects && len(tryOut.objects) > 0
}

// adopted records the ratio of the challenger that replaced the dictionary.
func (t *training) adopted(ratio float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.best = ratio
}

// full ends a window that is full, and reports whether it was the last one that a challenger
// needs.
func (t *training) full() bool {
	if t.raw < windowBytes {
		return false
	}
	ratio := float64(t.packed) / float64(t.raw)
	t.raw, t.packed = 0, 0
	switch {
	case t.phase == learning:
		t.phase = tryingOut
	case t.phase == tryingOut:
		t.phase, t.best = measuring, ratio // unless the challenger does better
		return true
	case t.best == 0 || ratio > t.best*worseRatio && t.rest <= 0:
		t.phase = learning
		t.forget()
	case ratio < t.best:
		t.best = ratio
	}
	return false
}

// forget drops the samples.
func (t *training) forget() { t.learn, t.tryOut, t.skipped = samples{}, samples{}, 0 }

// trainDict returns a dictionary made of the text of sample objects, at least one. If they are
// more than fit, it takes objects at equal distances.
func trainDict(samples []*object.Object) []byte {
	step := 1
	if n := dictBytes / samples[0].Size(); n > 0 && len(samples) > n {
		step = len(samples) / n
	}
	var dict []byte
	for i := 0; i < len(samples) && len(dict) < dictBytes; i += step {
		raw := samples[i].Raw()
		// A few objects may be much longer than the rest: each gets at most half of the
		// dictionary.
		dict = append(dict, raw[:min(len(raw), dictBytes/2, dictBytes-len(dict))]...)
	}
	return dict
}

// train stores a first dictionary for the collection, or a better one, if it is time. changes
// are those to be compressed next.
func (c *collection) train(changes []store.Change) error {
	t := &c.training
	if c.dictID == 0 {
		objects := t.first(changes)
		if objects == nil {
			return nil
		}
		if c.db.log.Err() != nil {
			return nil // flushes fail, so storing a dictionary would fail too
		}
		// If storing it fails, records are compressed without a dictionary.
		_, err := c.adopt(trainDict(objects))
		if errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrNoCollection) {
			return err
		}
		return nil
	}
	learn, tryOut, ok := t.window()
	if !ok {
		return nil
	}
	challenger, err := format.NewEncoder(c.dictID, trainDict(learn.objects))
	if err != nil {
		return err
	}
	defer func() { _ = challenger.Close() }() // flushes nothing: only EncodeAll is used
	champion, err := c.db.codecs.Encoder(c.dictID, c.dict)
	if err != nil {
		return err
	}
	was, is := 0, 0
	for _, o := range tryOut.objects {
		was += len(champion.EncodeAll(o.Raw(), nil))
		is += len(challenger.EncodeAll(o.Raw(), nil))
	}
	if float64(is) > float64(was)*betterRatio {
		return nil
	}
	// If storing it fails, the old one stays in use.
	if adopted, err := c.adopt(trainDict(append(learn.objects, tryOut.objects...))); err == nil && adopted {
		t.adopted(float64(is) / float64(tryOut.bytes))
	}
	return nil
}

// adopt stores a dictionary for the records to come. It commits a transaction of its own,
// because a record must never refer to a dictionary that is not stored; after a crash, no
// record may refer to the new one, which is harmless. It reports false if the collection has
// maxDicts dictionaries that are all in use.
func (c *collection) adopt(dict []byte) (adopted bool, err error) {
	keep := c.dictIDs
	if len(keep) >= maxDicts {
		if keep, err = c.usedDicts(); err != nil {
			return false, fmt.Errorf("look for dictionaries that are not used: %w", err)
		}
		if c.dictID != 0 && !slices.Contains(keep, c.dictID) {
			keep = append(keep, c.dictID) // records in the memtable may yet be compressed with it
		}
		if len(keep) >= maxDicts {
			return false, nil
		}
	}
	var id uint32
	var ids []uint32
	err = c.db.update(func(tx *boltfile.Tx) error {
		b, err := c.bucket(tx)
		if err != nil {
			return err
		}
		all := tx.Bucket(format.BucketDict)
		seq, err := all.NextSequence()
		if err != nil {
			return err
		}
		id = uint32(seq) //nolint:gosec // no file gets four billion dictionaries
		ids = append(slices.Clone(keep), id)
		if err := all.Put(format.DictKey(id), format.EncodeDict(format.DictKey(id), dict)); err != nil {
			return err
		}
		for _, old := range c.dictIDs {
			if slices.Contains(keep, old) {
				continue
			}
			if err := all.Delete(format.DictKey(old)); err != nil {
				return err
			}
		}
		return b.Put(format.KeyDict, format.EncodeDictIDs(c.id, ids))
	})
	if err != nil {
		return false, fmt.Errorf("store dictionary: %w", err)
	}
	c.db.codecs.Retire(c.dictID)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dictIDs, c.dictID, c.dict = ids, id, dict
	return true, nil
}

// usedDicts returns the dictionaries of the collection that a record may refer to. During a
// replacement these are all of them: it has compressed records in memory.
func (c *collection) usedDicts() ([]uint32, error) {
	c.mu.Lock()
	replacing := c.replacing
	c.mu.Unlock()
	if replacing {
		return c.dictIDs, nil
	}
	v, err := c.db.newView(c.id)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	used := map[uint32]bool{}
	dict := func(_, b []byte) (uint32, error) {
		r, err := format.ParseRecord(b)
		if err != nil {
			return 0, nil //nolint:nilerr // no dictionary makes it readable
		}
		return r.Dict, nil
	}
	for _, bucket := range [][]byte{format.BucketObjects, format.BucketTombs} {
		for id, err := range scan(v, v.path(bucket), "", "", dict) {
			if err != nil {
				return nil, err
			}
			used[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(c.dictIDs), func(id uint32) bool { return !used[id] }), nil
}

// dropDicts deletes the dictionaries of a collection that is about to be deleted.
func dropDicts(tx *boltfile.Tx, id string) error {
	b := tx.Bucket(format.BucketCollections).Bucket([]byte(id))
	if b == nil {
		return nil
	}
	ids, err := format.DecodeDictIDs(id, b.Get(format.KeyDict))
	if err != nil {
		return nil //nolint:nilerr // the ids are lost: the dictionaries stay
	}
	for _, n := range ids {
		if err := tx.Bucket(format.BucketDict).Delete(format.DictKey(n)); err != nil {
			return err
		}
	}
	return nil
}
