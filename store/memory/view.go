package memory

import (
	"iter"
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
func (v *view) Info() store.Info { return v.info }

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
// the way, else into the view's own tree.
func (v *view) get(key string) (*object.Object, bool) {
	if v.c.published.Load().number == v.number && v.c.hot.TryRLock() {
		newest := v.c.published.Load().number == v.number
		o, ok := v.c.byKey[key]
		v.c.hot.RUnlock()
		if newest {
			return o, ok
		}
	}
	f, ok := v.objects.Get(key)
	return f.object, ok
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
		err := v.scan(prefix, after, func(_ string, o *object.Object) bool { return yield(o, nil) })
		if err != nil {
			yield(nil, err)
		}
	}
}

// Headers implements [store.View].
func (v *view) Headers(prefix, after string) iter.Seq2[store.Header, error] {
	return func(yield func(store.Header, error) bool) {
		err := v.scan(prefix, after, func(key string, o *object.Object) bool { return yield(header(key, o), nil) })
		if err != nil {
			yield(store.Header{}, err)
		}
	}
}

// scan calls each for the keys with the prefix that come after the key after,
// until it returns false. An error means that there would have been more.
func (v *view) scan(prefix, after string, each func(string, *object.Object) bool) error {
	if err := v.usable(); err != nil {
		return err
	}
	var err error
	v.objects.Ascend(max(prefix, after), func(key string, f filed) bool {
		if key == after {
			return true
		}
		if !strings.HasPrefix(key, prefix) || !each(key, f.object) {
			return false
		}
		if v.closed { // each may have closed it
			err = v.usable()
		}
		return err == nil
	})
	return err
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
