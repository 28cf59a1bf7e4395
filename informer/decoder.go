package informer

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/object"
)

// decoder hands out decoded objects. They are shared, so readers must not change them; the mutation
// detector, if it is on, reports a change.
type decoder struct {
	codec    Codec
	detector cache.MutationDetector
	size     int // objects in the cache of decoded objects

	// kept has, by key, the objects that were decoded last, each in one state; nil for none. A reader loads it before
	// it reads an object, so that after reset it can't add an older object to the new cache.
	kept atomic.Pointer[lru.Cache]

	last atomic.Pointer[exactly] // the newest object that exact decoded
}

type exactly struct {
	object *object.Object
	value  any
}

// decoding returns a function that decodes objects. The objects must be read after the call, see
// kept.
func (d *decoder) decoding() Decode { return d.decode(true) }

// scanning is like decoding, and adds nothing to the cache, which a scan would flush.
func (d *decoder) scanning() Decode { return d.decode(false) }

func (d *decoder) decode(add bool) Decode {
	kept := d.kept.Load()
	return func(o *object.Object) (any, error) {
		if v := o.Go(); v != nil {
			return v, nil
		}
		key, at := o.Key(), version{string(o.GetUID()), o.GetResourceVersion()}
		if v, ok := cached(kept, key, at); ok {
			return v, nil
		}
		v, err := d.fresh(o)
		if err == nil && add && kept != nil && at.rv != "" {
			kept.Add(key, decoded{at, v})
		}
		return v, err
	}
}

// exact decodes an object for an index function. It does not use the cache: the store also calls it
// for an object that a list replaces, whose successor may have the same resourceVersion. The newest
// result is kept for the next index function.
func (d *decoder) exact(o *object.Object) (any, error) {
	if v := o.Go(); v != nil {
		return v, nil
	}
	if l := d.last.Load(); l != nil && l.object == o {
		return l.value, nil
	}
	v, err := d.fresh(o)
	if err == nil {
		d.last.Store(&exactly{o, v})
	}
	return v, err
}

func (d *decoder) fresh(o *object.Object) (runtime.Object, error) {
	v, err := d.codec.Decode(o)
	if err != nil {
		return nil, err
	}
	d.detector.AddObject(v)
	return v, nil
}

// reset empties the cache. It is called when another object may have the same UID and
// resourceVersion as a cached one.
func (d *decoder) reset() {
	if d.kept.Load() != nil {
		d.kept.Store(lru.New(d.size))
	}
}

// unversioned turns the cache off. It is called if different objects may have the same UID and
// resourceVersion at any time.
func (d *decoder) unversioned() { d.kept.Store(nil) }

// version identifies one state of an object, under the rules of one collection.
type version struct{ uid, rv string }

// decoded is a decoded object.
type decoded struct {
	version
	value any
}

// cached returns an object of a cache, which may be nil, if it is there in that state.
func cached(kept *lru.Cache, key string, at version) (any, bool) {
	if kept == nil || at.rv == "" { // without a resourceVersion, two states are not distinguishable
		return nil, false
	}
	v, ok := kept.Get(key)
	if d, _ := v.(decoded); ok && d.version == at {
		return d.value, true
	}
	return nil, false
}
