package informer

import (
	"errors"
	"fmt"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// Known shows a queue what a collection holds. See deltafifo.Known.
type Known struct {
	Collection store.Collection

	// Unversioned reports whether an object may change without getting another
	// resourceVersion: then no listed item counts as known. Nil is never.
	Unversioned func() bool
}

// Lookup returns UID and resourceVersion of key. A damaged record counts as
// absent, so that a list replaces it.
func (k Known) Lookup(key string) (uid, rv string, ok bool, err error) {
	if k.Unversioned != nil && k.Unversioned() {
		return "", "", false, nil
	}
	if k.Collection.State().Count == 0 { // a first list asks for each of its items
		return "", "", false, nil
	}
	now, end, err := lookups(k.Collection)
	if err != nil {
		return "", "", false, fmt.Errorf("look up %s: %w", key, err)
	}
	defer end()
	h, at, err := header(now, key)
	return h.UID, h.RV, at == readable, err
}

// Keys returns all keys, those of damaged records too.
func (k Known) Keys() ([]string, error) {
	v, err := k.Collection.View()
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	defer v.Close()
	var keys []string
	for e, err := range v.IndexEntries(store.NamespaceIndex, "", store.IndexEntry{}) {
		if err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
		keys = append(keys, e.Key)
	}
	return keys, nil
}

// lookup reads one object at a time.
type lookup interface {
	Get(key string) (*object.Object, error)
	Header(key string) (store.Header, error)
}

// lookups returns what reads a collection's newest state, and what ends it: a view, or the
// collection itself where it needs none, as in memory, where a view has its price at the
// next change. Only who writes the collection himself sees one state then.
func lookups(c store.Collection) (l lookup, end func(), err error) {
	if h, ok := c.(*handle); ok {
		c = h.current.Load().Collection
	}
	if m, ok := c.(*memory.Collection); ok {
		return getter{m}, func() {}, nil
	}
	v, err := c.View()
	if err != nil {
		return nil, nil, err
	}
	return v, v.Close, nil
}

// getter is a lookup without a view.
type getter struct{ *memory.Collection }

// Header implements lookup.
func (g getter) Header(key string) (store.Header, error) {
	o, err := g.Get(key)
	if err != nil {
		return store.Header{}, err
	}
	return store.Header{Key: key, UID: string(o.GetUID()), RV: o.GetResourceVersion(), Bytes: o.Size()}, nil
}

// presence is what a collection has under a key.
type presence int

const (
	absent presence = iota
	readable
	damaged // there is a record, and nobody can read it
)

// header reads a header, which is empty unless it is readable.
func header(l lookup, key string) (store.Header, presence, error) {
	h, err := l.Header(key)
	switch {
	case err == nil:
		return h, readable, nil
	case errors.Is(err, store.ErrNotFound):
		return store.Header{}, absent, nil
	case errors.As(err, new(*store.CorruptionError)):
		return store.Header{}, damaged, nil
	default:
		return store.Header{}, absent, err
	}
}
