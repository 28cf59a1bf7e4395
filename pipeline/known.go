package pipeline

import (
	"errors"
	"fmt"

	"github.com/snapcache/snapcache/store"
)

// KnownObjects implements deltafifo.KnownObjects over a collection.
type KnownObjects struct {
	Collection store.Collection

	// Unversioned reports whether an object may change without getting another resourceVersion:
	// then no listed item counts as known. Nil means never.
	Unversioned func() bool
}

// Version returns UID and resourceVersion of key. A corrupt record counts as absent, so that a list
// replaces it.
func (k KnownObjects) Version(key string) (uid, rv string, ok bool, err error) {
	if k.Unversioned != nil && k.Unversioned() {
		return "", "", false, nil
	}
	if k.Collection.State().Count == 0 { // saves the lookup of each item of a first list
		return "", "", false, nil
	}
	h, at, err := header(k.Collection.Lookup(), key)
	if err != nil {
		err = fmt.Errorf("look up %s: %w", key, err)
	}
	return h.UID, h.RV, at == readable, err
}

// Keys returns all keys, also of corrupt records.
func (k KnownObjects) Keys() ([]string, error) {
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

// presence is the state of a key's record.
type presence int

const (
	absent presence = iota
	readable
	corrupt // the record can't be read
)

// presenceOf returns the presence of a record from the error of reading it; an error that is not about
// the record is returned.
func presenceOf(err error) (presence, error) {
	switch {
	case err == nil:
		return readable, nil
	case errors.Is(err, store.ErrNotFound):
		return absent, nil
	case errors.As(err, new(*store.CorruptionError)):
		return corrupt, nil
	}
	return absent, err
}

// header reads a header, which is empty unless the record is readable.
func header(l store.Lookup, key string) (store.Header, presence, error) {
	h, err := l.Header(key)
	at, err := presenceOf(err)
	if at != readable {
		h = store.Header{}
	}
	return h, at, err
}
