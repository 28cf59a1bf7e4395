package informer

import (
	"errors"
	"fmt"

	"github.com/snapcache/snapcache/store"
)

// Known shows a queue what a collection holds. See deltafifo.Known.
type Known struct {
	Collection store.Collection
}

// Lookup returns UID and resourceVersion of key. A damaged record counts as
// absent, so that a list replaces it.
func (k Known) Lookup(key string) (uid, rv string, ok bool, err error) {
	v, err := k.Collection.View()
	if err != nil {
		return "", "", false, fmt.Errorf("look up %s: %w", key, err)
	}
	defer v.Close()
	h, at, err := header(v, key)
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

// presence is what a collection has under a key.
type presence int

const (
	absent presence = iota
	readable
	damaged // there is a record, and nobody can read it
)

// header reads a header, which is empty unless it is readable.
func header(v store.View, key string) (store.Header, presence, error) {
	h, err := v.Header(key)
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
