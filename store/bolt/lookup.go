package bolt

import (
	"fmt"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// lookup reads single records for one batch of a collection, in the view that the batch is written
// to, and keeps the found records for it. See [store.Lookup].
type lookup struct {
	c     *collection
	view  *view // the writer's, that found is of; nil before the first read
	puts  int   // see view
	found map[string]*found
}

// found is the content stored under a key. Its bytes are valid while the view is open.
type found struct {
	stored []byte // nil for nothing
	record format.Record
	err    error          // why the record can't be read, nil if it can
	object *object.Object // nil unless it was decoded
}

func find(stored, key []byte) *found {
	f := &found{stored: stored}
	if stored != nil {
		f.record, f.err = format.DecodeRecord(key, stored)
	}
	return f
}

func (c *collection) Lookup() store.Lookup { return &lookup{c: c} }

// fits reports whether the found records are still v's: there was neither a commit nor a batch since.
func (l *lookup) fits(v *view) bool { return l.view == v && l.puts == v.puts }

func (l *lookup) Header(key string) (h store.Header, err error) {
	err = l.read(key, func(v *view, f *found) (err error) {
		h, err = v.headerOf(key, f.record)
		return err
	})
	return h, err
}

func (l *lookup) Get(key string) (o *object.Object, err error) {
	err = l.read(key, func(v *view, f *found) (err error) {
		if f.object == nil {
			f.object, err = v.decode(key, f.record)
		}
		o = f.object
		return err
	})
	return o, err
}

// read calls fn with the record at key.
func (l *lookup) read(key string, fn func(*view, *found) error) error {
	db := l.c.db.lockBeside()
	defer db.unlock()
	if err := l.c.ended(); err != nil {
		return fmt.Errorf("collection %s: %w", l.c.id, err)
	}
	v, err := db.writerView(l.c.id)
	if err != nil {
		return err
	}
	if !l.fits(v) {
		l.view, l.puts, l.found = v, v.puts, map[string]*found{}
	}
	return v.read(func() error {
		f := l.found[key]
		if f == nil {
			f = find(v.lookup(v.path(format.BucketObjects), []byte(key)), []byte(key))
			l.found[key] = f
		}
		switch {
		case f.stored == nil:
			return fmt.Errorf("collection %s: %s: %w", l.c.id, key, store.ErrNotFound)
		case f.err != nil:
			return v.corrupt(key, f.err)
		}
		return fn(v, f)
	})
}
