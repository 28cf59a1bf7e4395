package deltafifo

import (
	"k8s.io/client-go/tools/cache"
)

// KnownObjects is the content of a queue's consumer. It must include each delta that the consumer
// has finished with.
type KnownObjects interface {
	// Version returns the UID and resourceVersion of the object that the consumer holds under key;
	// ok is false if there is none.
	Version(key string) (uid, rv string, ok bool, err error)

	// Keys returns all keys that the consumer holds.
	Keys() ([]string, error)
}

// KnownObjectsGetter is a [KnownObjects] that returns the objects too, or an error if an object
// exists and can't be read. [Queue.Resync], [Queue.Replace] and [Queue.Delete] use it.
type KnownObjectsGetter interface {
	KnownObjects
	cache.KeyGetter
}

// KnownStore returns the content of one of client-go's stores, such as a [cache.Indexer].
func KnownStore(s cache.KeyListerGetter) KnownObjectsGetter { return knownStore{s} }

type knownStore struct{ cache.KeyListerGetter }

func (k knownStore) Version(key string) (uid, rv string, ok bool, err error) {
	obj, ok, err := k.GetByKey(key)
	if err != nil || !ok {
		return "", "", false, err
	}
	uid, rv = identity(obj)
	return uid, rv, true, nil
}

func (k knownStore) Keys() ([]string, error) { return k.ListKeys(), nil }
