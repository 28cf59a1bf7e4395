package memory

import (
	"iter"
	"sort"
	"strings"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// view reads one snapshot.
type view struct {
	*snapshot
	c      *collection
	closed bool
}

var _ store.View = (*view)(nil)

// Info implements [store.View].
func (v *view) Info() store.Info { return *v.info }

// State implements [store.View].
func (v *view) State() store.State { return v.state }

// Get implements [store.View].
func (v *view) Get(key string) (*object.Object, error) {
	if err := v.usable(); err != nil {
		return nil, err
	}
	o, ok := v.get(key)
	if !ok {
		return nil, v.c.notFound(key)
	}
	return o, nil
}

// get looks into the map where the view is the newest state and no writer is in
// the way, else into the view's own pages.
func (v *view) get(key string) (*object.Object, bool) {
	if v.c.number.Load() == v.number && v.c.hot.TryRLock() {
		newest := v.c.number.Load() == v.number
		var o *object.Object
		if f := v.c.byKey[key]; newest && f != nil {
			o = f.object
		}
		v.c.hot.RUnlock()
		if newest {
			return o, o != nil
		}
	}
	return v.objects.get(key)
}

// Header implements [store.View].
func (v *view) Header(key string) (store.Header, error) {
	o, err := v.Get(key)
	if err != nil {
		return store.Header{}, err
	}
	return header(key, o), nil
}

func header(key string, o *object.Object) store.Header {
	return store.Header{Key: key, UID: string(o.GetUID()), RV: o.GetResourceVersion(), Bytes: o.Size()}
}

// Objects implements [store.View].
func (v *view) Objects(prefix, after string) iter.Seq2[*object.Object, error] {
	return func(yield func(*object.Object, error) bool) {
		err := v.scan(prefix, after, func(_ []string, objects []*object.Object) bool {
			for _, o := range objects {
				if !yield(o, nil) {
					return false
				}
				if v.closed { // yield may have closed it
					return true
				}
			}
			return true
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// Headers implements [store.View].
func (v *view) Headers(prefix, after string) iter.Seq2[store.Header, error] {
	return func(yield func(store.Header, error) bool) {
		err := v.scan(prefix, after, func(keys []string, objects []*object.Object) bool {
			for i, key := range keys {
				if !yield(header(key, objects[i]), nil) {
					return false
				}
				if v.closed {
					return true
				}
			}
			return true
		})
		if err != nil {
			yield(store.Header{}, err)
		}
	}
}

// scan calls each for the keys with the prefix that come after the key after, and
// what is at them, a page at a time until it returns false. An error means that there
// would have been more, or that each has closed the view.
func (v *view) scan(prefix, after string, each func([]string, []*object.Object) bool) error {
	if err := v.usable(); err != nil {
		return err
	}
	c := v.objects.seek(max(prefix, after))
	if c.valid() && c.key() == after {
		c.next()
	}
	for ; c.valid(); c.page, c.item = c.page+1, 0 {
		g := v.objects.list[c.page]
		keys, items := g.keys[c.item:], g.items[c.item:]
		more := strings.HasPrefix(keys[len(keys)-1], prefix)
		if !more {
			n := sort.Search(len(keys), func(i int) bool { return !strings.HasPrefix(keys[i], prefix) })
			keys, items = keys[:n], items[:n]
		}
		if !each(keys, items) {
			return nil
		}
		if v.closed {
			return v.usable()
		}
		if !more {
			return nil
		}
	}
	return nil
}

// Close implements [store.View].
func (v *view) Close() {
	if !v.closed {
		v.closed = true
		v.c.db.views.Done()
	}
}

func (v *view) usable() error {
	if v.closed {
		return v.c.wrap(store.ErrClosed)
	}
	return nil
}
