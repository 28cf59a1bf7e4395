package pipeline

import (
	"errors"
	"fmt"
	"iter"

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

// keyPage is how many keys are read in one view.
const keyPage = 1000

// Keys iterates over all keys in order, also of corrupt records.
func (k KnownObjects) Keys() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		page := make([]string, keyPage)
		for after := ""; len(page) == keyPage; {
			var err error
			if page, err = k.keysAfter(after, page[:0]); err != nil {
				yield("", fmt.Errorf("list keys: %w", err))
				return
			}
			for _, after = range page {
				if !yield(after, nil) {
					return
				}
			}
		}
	}
}

// keysAfter appends the keys after the key after to page, until it is full.
func (k KnownObjects) keysAfter(after string, page []string) ([]string, error) {
	v, err := k.Collection.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	for h, err := range v.Headers("", after) {
		if err != nil && (h.Key == "" || !errors.As(err, new(*store.CorruptionError))) {
			return nil, err
		}
		if page = append(page, h.Key); len(page) == keyPage {
			break
		}
	}
	return page, nil
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
