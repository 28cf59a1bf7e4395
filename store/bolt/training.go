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

// A collection's dictionary is made of its first objects. If the compression ratio, measured window
// by window, has become worse than the dictionary's best when the collection is listed again or the
// file was compacted, the next objects make another dictionary, for later records.
const (
	// dictMinObjects is the least number of objects that a dictionary is made from.
	dictMinObjects = 8

	// windowBytes is how many bytes of JSON a window has: some hundred pods.
	windowBytes = 1 << 20

	// worseRatio is how much worse the ratio of a window must be for another dictionary. Windows
	// of 20,000 pods or 200,000 leases differ from each other by less than a tenth.
	worseRatio = 1.2

	// trainingRest is how many bytes of JSON are compressed between two dictionaries, or before
	// another try if a dictionary could not be stored.
	trainingRest = 8 << 20
)

// training decides when a collection gets its first or another dictionary. It has a lock of its
// own: the collection's writer trains, while a flush may compress in another goroutine.
type training struct {
	mu sync.Mutex

	raw, packed  int64   // bytes of the window, before and after compression
	best, newest float64 // packed/raw of a window: the lowest with this dictionary, and the newest; 0 if unknown
	rest         int64   // raw bytes until the next dictionary

	compactions int64            // of the database, as of the newest batch
	due         bool             // the next objects make another dictionary
	samples     []*object.Object // of earlier batches, for the next dictionary: fewer than dictMinObjects
}

// encoded records that an object of size bytes was compressed to packed bytes.
func (t *training) encoded(size, packed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raw += int64(size)
	t.packed += int64(packed)
	t.rest -= int64(size)
	if t.raw < windowBytes {
		return
	}
	t.newest = float64(t.packed) / float64(t.raw)
	if t.best == 0 || t.newest < t.best {
		t.best = t.newest
	}
	t.raw, t.packed = 0, 0
}

// listed records that the collection is listed again.
func (t *training) listed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = t.due || t.worse()
}

// wanted reports whether the dictionary is to be replaced. compactions is the database's count of
// compactions.
func (t *training) wanted(compactions int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if compactions != t.compactions {
		t.compactions, t.due = compactions, t.due || t.worse()
	}
	return t.due
}

func (t *training) worse() bool { return t.newest > t.best*worseRatio }

// collect collects objects for a dictionary, from batches of any size. It returns nil until there
// are enough objects.
func (t *training) collect(changes []store.Change) []*object.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rest > 0 {
		return nil
	}
	var objects []*object.Object
	for _, ch := range changes {
		if ch.Object != nil && ch.Object.Size() >= format.CompressAbove {
			objects = append(objects, ch.Object)
		}
	}
	if len(objects) < dictMinObjects {
		// An object that changes often counts once, so that the dictionary is not made of that
		// object alone. One as long as a dictionary would leave no room for others.
		for _, o := range objects {
			if o.Size() <= format.MaxDictBytes/2 {
				t.samples = slices.DeleteFunc(t.samples, func(old *object.Object) bool { return old.Key() == o.Key() })
				t.samples = append(t.samples, o)
			}
		}
		if objects = t.samples; len(objects) < dictMinObjects {
			return nil
		}
	}
	t.raw, t.packed, t.best, t.newest, t.rest = 0, 0, 0, 0, trainingRest
	t.due, t.samples = false, nil
	return objects
}

// trainDict returns a dictionary made from the JSON of the samples, at least one. If not all of
// them fit, it takes every n-th.
func trainDict(samples []*object.Object) []byte {
	step := 1
	if n := format.MaxDictBytes / samples[0].Size(); n > 0 && len(samples) > n {
		step = len(samples) / n
	}
	var dict []byte
	for i := 0; i < len(samples) && len(dict) < format.MaxDictBytes; i += step {
		raw := samples[i].Raw()
		// A few objects may be much longer than the rest: each gets at most half of the dictionary.
		dict = append(dict, raw[:min(len(raw), format.MaxDictBytes/2, format.MaxDictBytes-len(dict))]...)
	}
	return dict
}

// untrained reports whether the collection is about to get a dictionary.
func (c *collection) untrained() bool {
	return (c.dictID == 0 || c.training.wanted(c.db.compactor.count.Load())) && len(c.dictIDs) < format.MaxDicts
}

// train stores a new dictionary for the collection if one is due. changes are compressed next.
func (c *collection) train(changes []store.Change) error {
	if !c.untrained() {
		return nil
	}
	objects := c.training.collect(changes)
	if objects == nil || c.db.log.Err() != nil { // flushes fail, so storing a dictionary would fail too
		return nil
	}
	// If storing it fails, records are compressed with the old one, or without one.
	err := c.adopt(trainDict(objects))
	if errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrNoCollection) {
		return err
	}
	return nil
}

// adopt stores a dictionary for later records. It commits a transaction of its own, because a
// record must never refer to a dictionary that is not stored; after a crash there may be a
// dictionary without records, which is harmless.
func (c *collection) adopt(dict []byte) error {
	var ids []uint32
	err := c.db.update(func(tx *boltfile.Tx) error {
		b, err := c.bucket(tx)
		if err != nil {
			return err
		}
		all := tx.Bucket(format.BucketDict)
		seq, err := all.NextSequence()
		if err != nil {
			return err
		}
		id := uint32(seq) //nolint:gosec // no file gets four billion dictionaries
		ids = append(slices.Clone(c.dictIDs), id)
		if err := all.Put(format.DictKey(id), format.EncodeDict(format.DictKey(id), dict)); err != nil {
			return err
		}
		return b.Put(format.KeyDict, format.EncodeDictIDs(c.id, ids))
	})
	if err != nil {
		return fmt.Errorf("store dictionary: %w", err)
	}
	c.db.codecs.Retire(c.dictID)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dictIDs, c.dictID, c.dict = ids, ids[len(ids)-1], dict
	return nil
}

// pack compresses a record of the collection, see writeback.Cell.
func (c *collection) pack(key, b []byte) ([]byte, error) {
	r, err := format.ParseRecord(b)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	id, dict := c.dictID, c.dict
	c.mu.Unlock()
	size := len(r.Payload)
	if err := c.db.codecs.Compress(&r, id, dict); err != nil {
		return nil, err
	}
	c.training.encoded(size, len(r.Payload))
	return r.Encode(key), nil
}

// dictLookup returns a function that reads dictionaries in tx. It returns nil for
// a dictionary that is missing or corrupt.
func dictLookup(tx *boltfile.Tx) func(uint32) []byte {
	return func(id uint32) []byte {
		b := tx.Bucket(format.BucketDict)
		if b == nil {
			return nil
		}
		key := format.DictKey(id)
		return format.DecodeDict(key, b.Get(key))
	}
}

// dropDicts deletes the dictionaries of a collection that is about to be deleted.
func dropDicts(tx *boltfile.Tx, id string) error {
	b := tx.At(format.CollectionPath(id))
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
