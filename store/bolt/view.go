package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// view is a read transaction on one collection, under the memtable as it was when
// the view was taken. See [store.View].
type view struct {
	db      *DB
	tx      *boltfile.Tx
	over    *writeback.Overlay
	id      string
	base    [][]byte // path of the current generation
	info    store.Info
	state   store.State
	indexes []store.Index // that the collection was opened with, if it is open
	found   []foundBucket // see bucket; nil if the view does not own tx
	puts    int           // of batches since a writer's view was opened

	decoders *format.Decoders // of the records of Records

	mu    sync.Mutex // held for each read; the time limit takes it to end the transaction
	limit clock.Timer
	ended error // the error of reads after the transaction has ended; nil while it is open
}

var _ store.View = (*view)(nil)

var errBucketMissing = errors.New("a bucket is missing")

// View returns a view of a stored collection. It expires after Options.ViewLimit.
func (db *DB) View(id string) (_ store.View, err error) {
	v, err := db.newView(id)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.limit = db.opts.Clock.AfterFunc(db.opts.ViewLimit, func() { v.end(store.ErrViewExpired) })
	return v, nil
}

func (db *DB) newView(id string) (*view, error) {
	return db.viewUnder(id, db.log.Snapshot, (*view).load)
}

// viewUnder returns a view that load has filled. overlay returns the memtable for it.
func (db *DB) viewUnder(id string, overlay func() *writeback.Overlay, load func(*view) error) (*view, error) {
	for {
		// Take the memtable first, so that cells that a fold moves to the file in between are in
		// both, not in neither.
		over := overlay()
		tx, err := db.handle.Begin()
		if err != nil {
			return nil, fmt.Errorf("collection %s: view: %w", id, err)
		}
		v := &view{db: db, tx: tx, over: over, id: id, found: make([]foundBucket, 0, 5), decoders: new(format.Decoders)}
		if indexes, ok := db.indexes.Load(id); ok {
			v.indexes = indexes.([]store.Index) //nolint:forcetypeassert // see DB.indexes
		}
		fits := false
		err = v.read(func() error {
			if fits = over.Fits(boltfile.Epoch(tx)); !fits {
				return nil
			}
			return load(v)
		})
		if err == nil && fits {
			return v, nil
		}
		v.Close() // an open one would block the close of the database
		if err != nil {
			return nil, err
		}
		// The buckets were rewritten after the overlay was taken. The overlay of the next try fits
		// them.
	}
}

// load reads the collection's info, state and generation into the view.
func (v *view) load() error {
	b, err := v.locate()
	if err != nil {
		return err
	}
	rawState := b.Get(format.KeyState)
	if c, ok := v.over.Get(format.Address(format.CollectionPath(v.id), format.KeyState)); ok {
		rawState = c.Value
	}
	if v.info, err = decodeOnce[store.Info](v, format.KeyInfo, b.Get(format.KeyInfo)); err != nil {
		return err
	}
	if v.state, err = decodeOnce[store.State](v, format.KeyState, rawState); err != nil {
		return err
	}
	if _, err := format.VerifyChecksum(v.id, format.KeyIndexes, v.lookup(v.base, format.KeyIndexes)); err != nil {
		return corruptValue(v.db.path, v.id, format.KeyIndexes, err)
	}
	return nil
}

// decoded is a value of a collection with its bytes.
type decoded[T any] struct {
	raw   []byte
	value T
}

// decodeOnce returns the value of raw. It decodes raw unless the previous view has decoded the
// same bytes, as most views do.
func decodeOnce[T any](v *view, name, raw []byte) (T, error) {
	key := string(name) + v.id
	if d, ok := v.db.decoded.Load(key); ok && bytes.Equal(d.(decoded[T]).raw, raw) { //nolint:forcetypeassert // of this name
		return d.(decoded[T]).value, nil //nolint:forcetypeassert // of this name
	}
	value, err := decodeValue[T](v.db.path, v.id, name, raw)
	if err == nil {
		keepDecoded(v, name, raw, value)
	}
	return value, err
}

// keepDecoded keeps the value of raw for decodeOnce.
func keepDecoded[T any](v *view, name, raw []byte, value T) {
	v.db.decoded.Store(string(name)+v.id, decoded[T]{bytes.Clone(raw), value})
}

// locate finds the collection's bucket and its current generation.
func (v *view) locate() (*boltfile.Bucket, error) {
	b := v.bucket(format.CollectionPath(v.id))
	if b == nil {
		return nil, fmt.Errorf("collection %s: %w", v.id, store.ErrNoCollection)
	}
	gen, err := readGen(v.db.path, v.id, b)
	if err != nil {
		return nil, err
	}
	v.base = format.GenPath(v.id, format.GenName(gen))
	if v.bucket(v.path(format.BucketObjects)) == nil || v.bucket(v.path(format.BucketIndex)) == nil {
		return nil, v.corrupt("", errBucketMissing)
	}
	return b, nil
}

// Header implements [store.Collection]. It reads no more than the record, because requests that are
// authenticated wait for it.
func (c *collection) Header(key string) (store.Header, error) {
	if err := c.ended(); err != nil {
		return store.Header{}, fmt.Errorf("collection %s: %w", c.id, err)
	}
	v, err := c.db.viewUnder(c.id, c.db.log.Snapshot, func(v *view) error {
		_, err := v.locate()
		return err
	})
	if err != nil {
		return store.Header{}, err
	}
	defer v.Close()
	return v.Header(key)
}

// path returns the path of a bucket in the view's generation.
func (v *view) path(names ...[]byte) [][]byte { return slices.Concat(v.base, names) }

func (v *view) Info() store.Info   { return v.info }
func (v *view) State() store.State { return v.state }
func (v *view) Close()             { v.end(store.ErrClosed) }

// end ends the read transaction and releases the file; later reads return why. Ending it again
// does nothing.
func (v *view) end(why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended != nil {
		return
	}
	v.ended = why
	if v.limit != nil {
		v.limit.Stop()
	}
	v.tx.Rollback()
}

// read runs fn, which reads the file or the memtable. It holds the view's lock, so that the time
// limit does not end the transaction meanwhile: bytes of the file must not be used after fn has
// returned. If the view has ended, read returns the reason.
func (v *view) read(fn func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended != nil {
		return v.ended
	}
	return v.tx.Read(fn)
}

func (v *view) corrupt(key string, err error) error { return v.db.corrupt(v.id, key, err) }

// corrupt returns the error for a corrupt record or, if key is empty, a corrupt collection. It
// reports a record to Options.OnCorrupt.
func (db *DB) corrupt(id, key string, err error) error {
	if key != "" && db.opts.OnCorrupt != nil {
		db.opts.OnCorrupt(id, key)
	}
	return &store.CorruptionError{Path: db.path, Collection: id, Key: key, Reason: err.Error()}
}

func (v *view) Get(key string) (*object.Object, error) { return getRecord(v, key, v.object) }

// getRecord returns the record at key as decoded by of.
func getRecord[T any](v *view, key string, of func(key, b []byte) (T, error)) (got T, err error) {
	err = v.read(func() (err error) {
		b := v.lookup(v.path(format.BucketObjects), []byte(key))
		if b == nil {
			return fmt.Errorf("collection %s: %s: %w", v.id, key, store.ErrNotFound)
		}
		got, err = of([]byte(key), b)
		return err
	})
	return got, err
}

func (v *view) object(key, b []byte) (*object.Object, error) {
	r, err := format.DecodeRecord(key, b)
	if err != nil {
		return nil, v.corrupt(string(key), err)
	}
	return v.decode(string(key), r)
}

func (v *view) Raw(key string, buf []byte) ([]byte, error) {
	return getRecord(v, key, func(key, b []byte) ([]byte, error) {
		r, err := format.DecodeRecord(key, b)
		if err == nil {
			buf, err = v.db.codecs.Decode(r, dictLookup(v.tx), buf)
		}
		if err != nil {
			return nil, v.corrupt(string(key), err)
		}
		return buf, nil
	})
}

func (v *view) decode(key string, r format.Record) (o *object.Object, err error) {
	raw, err := v.db.codecs.Decode(r, dictLookup(v.tx), nil)
	if err == nil {
		o, err = object.FromValid(raw)
	}
	if err != nil {
		return nil, v.corrupt(key, err)
	}
	return o, nil
}

func (v *view) Header(key string) (store.Header, error) { return getRecord(v, key, v.header) }

func (v *view) header(key, b []byte) (store.Header, error) {
	r, err := format.DecodeRecord(key, b)
	if err == nil {
		return v.headerOf(string(key), r)
	}
	return store.Header{Key: string(key)}, v.corrupt(string(key), err)
}

func (v *view) headerOf(key string, r format.Record) (store.Header, error) {
	if r.Codec == format.CodecZstd {
		// A record without its dictionary is corrupt too, and must be reported as such: a list
		// replaces an unchanged object only if its record is corrupt.
		if _, err := v.db.codecs.Decoder(r.Dict, dictLookup(v.tx)); err != nil {
			return store.Header{Key: key}, v.corrupt(key, err)
		}
	}
	return store.Header{Key: key, UID: r.UID, RV: r.RV, Bytes: r.Size}, nil
}

func (v *view) Objects(prefix, after string) iter.Seq2[*object.Object, error] {
	return scan(v, v.path(format.BucketObjects), prefix, after, v.object)
}

func (v *view) Records(prefix, after string) iter.Seq2[store.Record, error] {
	db, id, decoders := v.db, v.id, v.decoders // not v, which is closed before records are decoded
	decode := func(key string, stored, buf []byte) ([]byte, error) {
		r, err := format.DecodeRecord([]byte(key), stored)
		if err == nil {
			buf, err = decoders.Decode(r, buf)
		}
		if err != nil {
			return nil, db.corrupt(id, key, err)
		}
		return buf, nil
	}
	return scan(v, v.path(format.BucketObjects), prefix, after, func(k, b []byte) (store.Record, error) {
		r, err := format.DecodeRecord(k, b)
		if err == nil {
			err = decoders.Load(db.codecs, r, dictLookup(v.tx))
		}
		if err != nil {
			return store.Record{Header: store.Header{Key: string(k)}}, v.corrupt(string(k), err)
		}
		return store.Record{
			Header: store.Header{Key: string(k), UID: r.UID, RV: r.RV, Bytes: r.Size},
			Stored: bytes.Clone(b), Decode: decode,
		}, nil
	})
}

func (v *view) Headers(prefix, after string) iter.Seq2[store.Header, error] {
	return scan(v, v.path(format.BucketObjects), prefix, after, v.header)
}

func (v *view) Indexes() []string {
	complete, _ := v.definitions()
	return slices.Sorted(maps.Keys(complete))
}

func (v *view) Building() []string {
	_, building := v.definitions()
	return slices.Sorted(maps.Keys(building))
}

// definitions returns the indexes that are complete, and the ones that are being built. The checksum
// of the former matched when the view was taken: if the definitions can't be read any more,
// definitions returns none, and reads of an index fail with store.ErrNoIndex.
func (v *view) definitions() (complete, building definitions) {
	if err := v.read(func() error {
		complete, _ = decodeValue[definitions](v.db.path, v.id, format.KeyIndexes, v.lookup(v.base, format.KeyIndexes))
		build, _ := v.db.decodeBuilding(v.id, v.lookup(v.base, format.KeyBuilding))
		building = build.Indexes
		return nil
	}); err != nil {
		return nil, nil
	}
	return complete, building
}

func (v *view) IndexKeys(index, value, after string) iter.Seq2[string, error] {
	if index == store.NamespaceIndex {
		return v.namespaceKeys(value, after)
	}
	prefix := value + "\x00"
	return indexRows(v, index, prefix, prefix+after, func(row string) (string, error) { return row[len(prefix):], nil })
}

func (v *view) IndexEntries(index, prefix string, after store.IndexEntry) iter.Seq2[store.IndexEntry, error] {
	if index == store.NamespaceIndex {
		return v.namespaceEntries(prefix, after)
	}
	return indexRows(v, index, prefix, entryPosition(after), func(row string) (e store.IndexEntry, err error) {
		var ok bool
		if e.Value, e.Key, ok = strings.Cut(row, "\x00"); !ok {
			err = v.corrupt("", fmt.Errorf("index %s has a malformed entry", index))
		}
		return e, err
	})
}

// entryPosition returns the position of an entry among the keys of its bucket.
func entryPosition(e store.IndexEntry) string {
	if e == (store.IndexEntry{}) {
		return ""
	}
	// The first zero byte ends a value on disk, so a value with a zero byte in it comes after
	// the value in front of that byte, and before all others.
	if value, _, cut := strings.Cut(e.Value, "\x00"); cut {
		return value + "\x01"
	}
	return string(format.IndexKey(e.Value, e.Key))
}

// scan iterates over the keys of a bucket that start with prefix and come after the key after. row
// turns an entry into a value; if it returns an error, scan yields the error and continues.
func scan[T any](v *view, path [][]byte, prefix, after string, row func(k, val []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero, item T
		var itemErr error
		cur, err := v.cursor(path)
		if err != nil {
			yield(zero, err)
			return
		}
		use := func(k, val []byte) {
			if bytes.HasPrefix(k, []byte(prefix)) {
				item, itemErr = row(k, val)
			}
		}
		k, err := v.step(nil, func() ([]byte, []byte) { return cur.Seek([]byte(max(prefix, after))) }, use)
		next := func() ([]byte, []byte) { return cur.Next(k) }
		if err == nil && after != "" && string(k) == after {
			k, err = v.step(nil, next, use)
		}
		var last []byte
		for err == nil && k != nil && bytes.HasPrefix(k, []byte(prefix)) {
			if !yield(item, itemErr) {
				return
			}
			buf := last
			last = k
			if k, err = v.step(buf, next, use); err == nil && k != nil && bytes.Compare(k, last) <= 0 {
				err = v.corrupt("", boltfile.ErrOrder)
			}
		}
		if err != nil {
			yield(zero, err)
		}
	}
}

// all calls row with each entry of a bucket, in order.
func (v *view) all(path [][]byte, row func(k, b []byte)) error {
	for _, err := range scan(v, path, "", "", func(k, b []byte) (struct{}, error) { row(k, b); return struct{}{}, nil }) {
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *view) cursor(path [][]byte) (cur *writeback.Cursor, err error) {
	err = v.read(func() error {
		b := v.bucket(path)
		if b == nil {
			return v.corrupt("", errBucketMissing)
		}
		cur = v.over.Cursor(path, b)
		return nil
	})
	return cur, err
}

// step moves a cursor, calls use with the entry, and returns a copy of the key, in buf if it fits,
// nil at the end. The time limit may end the view between any two steps, so the mapped bytes of key
// and value are valid only under the view's lock.
func (v *view) step(buf []byte, move func() (k, val []byte), use func(k, val []byte)) (key []byte, err error) {
	err = v.read(func() error {
		if k, val := move(); k != nil {
			use(k, val)
			buf = append(buf[:0], k...)
			key = buf
		}
		return nil
	})
	return key, err
}
