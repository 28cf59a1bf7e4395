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

// A collection's first dictionary is made of its first objects. They may be few, or
// not like those that follow, and what a cluster runs changes over the years. So what
// is compressed is measured, window by window. Where a window does worse than the
// dictionary once did, samples are taken during the two that follow: a challenger is
// made of those of one window and tried on those of the other, and takes over if it
// saves enough there. Not on neighbours: a list goes through one namespace after the
// other, and of the next one a challenger made of this one knows no more than the
// dictionary does. The first dictionary of a process is challenged once in any case:
// what it was good for is not known.
const (
	// dictBytes is the size of a collection's dictionary, dictMinObjects the number of
	// objects it takes to make one. Objects of one kind repeat each other's keys and
	// boilerplate, which a dictionary lets each of them refer to.
	dictBytes      = 64 << 10
	dictMinObjects = 8

	// windowBytes is how much JSON is measured at a time: some hundred pods.
	windowBytes = 1 << 20

	// worseRatio is how much worse a window must do to call for a challenger. Windows
	// of 20,000 pods or 200,000 leases differ from each other by less than a tenth.
	worseRatio = 1.2

	// betterRatio is what a challenger may need of the bytes that the dictionary needs.
	// A new one costs 64 KiB of the file and a fold. One of the same kind of object in
	// random order, instead of the first ones of a list, saves three to six percent.
	betterRatio = 0.85

	// trainingRest is how much JSON is compressed after one challenge before the next.
	trainingRest = 8 << 20

	// maxDicts bounds the dictionaries of a collection. At the bound those that no record
	// refers to any more make room; where there are none, the newest one stays in use.
	maxDicts = 4
)

// training decides when a collection gets a dictionary, the first or a better one. The
// collection's writer trains, and whoever flushes compresses.
type training struct {
	mu sync.Mutex

	raw, packed int64   // bytes of the window, before and after
	best        float64 // packed/raw that the dictionary was good for; 0 for not known
	rest        int64   // raw bytes before another challenge
	skipped     int64   // raw bytes since the newest sample

	// The samples: of the first objects, before there is a dictionary; of the window that
	// a challenger is made of, and of the one that it is tried on.
	phase  phase
	learn  samples
	tryOut samples
}

// phase is what a window is used for besides being measured.
type phase int

const (
	measuring phase = iota
	learning
	tryingOut
)

// samples are objects of at most dictBytes.
type samples struct {
	objects []*object.Object
	bytes   int
}

func (s *samples) add(o *object.Object) bool {
	// One that is as long as a dictionary would leave no room for others.
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

// encoded notes that so many bytes of an object were compressed to so many. sample
// returns the object, if it is asked for, or nil.
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

// first takes what the first dictionary is made of, from batches of any size, and
// returns it once it is enough.
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
		// Of one object only the newest state: else it would be all of the dictionary.
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

// adopts begins the time after a dictionary was made.
func (t *training) adopts() {
	t.forget()
	t.rest = trainingRest
}

// window ends a window that is full. Where it is time for a challenger it returns what
// that is made of and what it is tried on.
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

// adopted notes what the dictionary that took over is good for.
func (t *training) adopted(ratio float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.best = ratio
}

// full ends a window that is full, and says whether it was the last one that a
// challenger needs.
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

// trainDict makes a dictionary of sample objects, at least one: pieces of their text,
// the samples spread over all of them.
func trainDict(samples []*object.Object) []byte {
	step := 1
	if n := dictBytes / samples[0].Size(); n > 0 && len(samples) > n {
		step = len(samples) / n
	}
	var dict []byte
	for i := 0; i < len(samples) && len(dict) < dictBytes; i += step {
		raw := samples[i].Raw()
		// A few objects may be much longer than the rest: no more than half a
		// dictionary is spent on one.
		dict = append(dict, raw[:min(len(raw), dictBytes/2, dictBytes-len(dict))]...)
	}
	return dict
}

// train gives the collection its first dictionary, or a better one, where it is time.
// changes are what is compressed next.
func (c *collection) train(changes []store.Change) error {
	t := &c.training
	if c.dictID == 0 {
		objects := t.first(changes)
		if objects == nil {
			return nil
		}
		if c.db.log.Err() != nil {
			return nil // there is hardly room for it
		}
		// Where there is none, records go on without.
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
	// Where there is no room for it the old one goes on.
	if adopted, err := c.adopt(trainDict(append(learn.objects, tryOut.objects...))); err == nil && adopted {
		t.adopted(float64(is) / float64(tryOut.bytes))
	}
	return nil
}

// adopt stores a dictionary for the records to come, in a transaction of its own: a
// record must never refer to one that is not there. A crash after it leaves one that
// no record refers to, which is no harm. It is not adopted where there are too many.
func (c *collection) adopt(dict []byte) (adopted bool, err error) {
	keep := c.dictIDs
	if len(keep) >= maxDicts {
		if keep, err = c.usedDicts(); err != nil {
			return false, fmt.Errorf("look for dictionaries that are not used: %w", err)
		}
		if c.dictID != 0 && !slices.Contains(keep, c.dictID) {
			keep = append(keep, c.dictID) // which records in the memtable may yet be compressed with
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
		id = uint32(seq) //nolint:gosec // a file does not live to see four billion dictionaries
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

// usedDicts returns those of the collection's dictionaries that may be needed. While
// a replacement goes on that is all of them: what it holds in memory is not looked at.
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

// dropDicts deletes the dictionaries of a collection that is about to go.
func dropDicts(tx *boltfile.Tx, id string) error {
	b := tx.Bucket(format.BucketCollections).Bucket([]byte(id))
	if b == nil {
		return nil
	}
	ids, err := format.DecodeDictIDs(id, b.Get(format.KeyDict))
	if err != nil {
		return nil //nolint:nilerr // whose they are is not known: they stay
	}
	for _, n := range ids {
		if err := tx.Bucket(format.BucketDict).Delete(format.DictKey(n)); err != nil {
			return err
		}
	}
	return nil
}
