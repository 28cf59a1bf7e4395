package informer

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/object"
)

// decoder hands out decoded objects. They are shared, so nobody may change them;
// the mutation detector, where it is on, finds out who does.
type decoder struct {
	codec    Codec
	detector cache.MutationDetector
	size     int // of what is kept by use

	// kept is what is at hand. A reader takes it
	// before it reads, so that after reset it can't put what it read before among
	// what was read later.
	kept atomic.Pointer[kept]

	last atomic.Pointer[exactly] // what exact decoded last
}

// kept are decoded objects at hand.
type kept interface {
	get(*object.Object) (any, bool)
	add(*object.Object, any)
}

// exactly is a decoded object with the one that it was decoded from.
type exactly struct {
	object *object.Object
	value  any
}

// decoding returns what decodes objects that are read after the call.
func (d *decoder) decoding() Decode {
	k := *d.kept.Load()
	return func(o *object.Object) (any, error) {
		if v := o.Go(); v != nil {
			return v, nil
		}
		if v, ok := k.get(o); ok {
			return v, nil
		}
		v, err := d.fresh(o)
		if err == nil {
			k.add(o, v)
		}
		return v, err
	}
}

// scanning is decoding for one of many objects, which must not drive those that
// are in use out of what is kept by use.
func (d *decoder) scanning() Decode {
	k := *d.kept.Load()
	return func(o *object.Object) (any, error) {
		if v := o.Go(); v != nil {
			return v, nil
		}
		if v, ok := k.get(o); ok {
			return v, nil
		}
		return d.fresh(o)
	}
}

// exact decodes for an index, whose values must be those of the object that is asked
// of and not of another with the same resourceVersion: the store asks of what it
// removes as well, while a list replaces it. All indexes are asked of one object in turn.
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

func (d *decoder) fresh(o *object.Object) (any, error) {
	v, err := d.codec.Decode(o)
	if err != nil {
		return nil, err
	}
	d.detector.AddObject(v)
	return v, nil
}

func (d *decoder) keep(k kept) { d.kept.Store(&k) }

// reset is for when one UID and resourceVersion may have become another object.
func (d *decoder) reset() {
	if _, ok := (*d.kept.Load()).(*keptByUse); ok {
		d.keep(keepByUse(d.size))
	}
}

// unversioned is for when one UID and resourceVersion may become another object at any time.
func (d *decoder) unversioned() {
	if _, ok := (*d.kept.Load()).(*keptByUse); ok {
		d.keep(keptNot{})
	}
}

// keptNot keeps nothing.
type keptNot struct{}

func (keptNot) get(*object.Object) (any, bool) { return nil, false }
func (keptNot) add(*object.Object, any)        {}

// keptByUse keeps the decoded objects that were used last.
type keptByUse struct{ lru *lru.Cache }

// version is one state of one object, under the rules of one collection.
type version struct{ key, uid, rv string }

func versionOf(o *object.Object) version {
	return version{o.Key(), string(o.GetUID()), o.GetResourceVersion()}
}

func keepByUse(size int) *keptByUse { return &keptByUse{lru.New(size)} }

func (k *keptByUse) get(o *object.Object) (any, bool) { return k.version(versionOf(o)) }

func (k *keptByUse) version(v version) (any, bool) {
	// Without a resourceVersion two states look the same.
	if v.rv == "" {
		return nil, false
	}
	return k.lru.Get(v)
}

func (k *keptByUse) add(o *object.Object, v any) {
	if o.GetResourceVersion() != "" {
		k.lru.Add(versionOf(o), v)
	}
}
