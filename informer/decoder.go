package informer

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/object"
)

// decoder hands out decoded objects. They are shared, so nobody may change them;
// the mutation detector, where it is on, finds out who does.
type decoder struct {
	codec    Codec
	kept     kept // nil keeps nothing
	detector cache.MutationDetector
}

// kept are decoded objects at hand.
type kept interface {
	get(*object.Object) (any, bool)
	add(*object.Object, any)

	// reset forgets all.
	reset()
}

func (d *decoder) decode(o *object.Object) (any, error) {
	if d.kept != nil {
		if v, ok := d.kept.get(o); ok {
			return v, nil
		}
	}
	v, err := d.codec.Decode(o)
	if err != nil {
		return nil, err
	}
	d.detector.AddObject(v)
	if d.kept != nil {
		d.kept.add(o, v)
	}
	return v, nil
}

// reset is for when one UID and resourceVersion may have become another object.
func (d *decoder) reset() {
	if d.kept != nil {
		d.kept.reset()
	}
}

// keptForLife keeps a decoded object for as long as the store has its encoded one,
// and somebody may yet decode it. It fits a store in memory, which hands out the
// same *object.Object each time.
type keptForLife struct{ m sync.Map } // weak.Pointer[object.Object] → any

func (k *keptForLife) get(o *object.Object) (any, bool) { return k.m.Load(weak.Make(o)) }

func (k *keptForLife) add(o *object.Object, v any) {
	p := weak.Make(o)
	if _, had := k.m.LoadOrStore(p, v); !had {
		runtime.AddCleanup(o, func(p weak.Pointer[object.Object]) { k.m.Delete(p) }, p)
	}
}

// reset has nothing to do: another object is another pointer.
func (k *keptForLife) reset() {}

// keptByUse keeps the decoded objects that were used last.
type keptByUse struct {
	size int
	lru  atomic.Pointer[lru.Cache]
}

// version is one state of one object, under the rules of one collection.
type version struct{ key, uid, rv string }

func versionOf(o *object.Object) version {
	return version{o.Key(), string(o.GetUID()), o.GetResourceVersion()}
}

func keepByUse(size int) *keptByUse {
	k := &keptByUse{size: size}
	k.reset()
	return k
}

func (k *keptByUse) get(o *object.Object) (any, bool) { return k.version(versionOf(o)) }

func (k *keptByUse) version(v version) (any, bool) {
	if v.rv == "" {
		return nil, false
	}
	return k.lru.Load().Get(v)
}

func (k *keptByUse) add(o *object.Object, v any) {
	// Without a resourceVersion two states look the same.
	if o.GetResourceVersion() != "" {
		k.lru.Load().Add(versionOf(o), v)
	}
}

func (k *keptByUse) reset() { k.lru.Store(lru.New(k.size)) }
