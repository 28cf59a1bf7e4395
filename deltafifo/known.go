package deltafifo

import (
	"k8s.io/client-go/tools/cache"
)

// Known tells a queue what its consumer holds. It must show everything that the
// consumer has finished with.
type Known interface {
	// Lookup returns UID and resourceVersion under which the consumer holds key.
	Lookup(key string) (uid, rv string, ok bool, err error)

	// Keys returns all keys that the consumer holds.
	Keys() ([]string, error)
}

// KnownObjects is a [Known] that can show the objects too, and an error where one
// is there and can't be read. [Queue.Resync], [Queue.Replace] and [Queue.Delete] make
// use of it.
type KnownObjects interface {
	Known
	cache.KeyGetter
}

// KnownStore shows what is in a store of client-go, such as a [cache.Indexer].
func KnownStore(s cache.KeyListerGetter) KnownObjects { return knownStore{s} }

type knownStore struct{ cache.KeyListerGetter }

func (k knownStore) Lookup(key string) (uid, rv string, ok bool, err error) {
	obj, ok, err := k.GetByKey(key)
	if err != nil || !ok {
		return "", "", false, err
	}
	uid, rv = identity(obj)
	return uid, rv, true, nil
}

func (k knownStore) Keys() ([]string, error) { return k.ListKeys(), nil }
