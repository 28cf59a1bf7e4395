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
func (v *view) Info() store.Info { return *v.info }

// State implements [store.View].
func (v *view) State() store.State { return v.state }

// Description implements [store.View].
func (v *view) Description() (store.Description, error) { return v.about, v.usable() }

// Get implements [store.View].
func (v *view) Get(key string) (*object.Object, error) {
	if err := v.usable(); err != nil {
		return nil, err
	}
	r, ok := v.keys.Get(key)
	if !ok {
		return nil, v.c.notFound(key)
	}
	return r.object, nil
}

// Raw implements [store.View].
func (v *view) Raw(key string, buf []byte) ([]byte, error) {
	o, err := v.Get(key)
	if err != nil {
		return nil, err
	}
	return append(buf[:0], o.Raw()...), nil
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
	return scan(v, prefix, after, func(r *record) *object.Object { return r.object })
}

// Records implements [store.View].
func (v *view) Records(prefix, after string) iter.Seq2[store.Record, error] {
	return scan(v, prefix, after, func(r *record) store.Record {
		return store.Record{Header: header(r.key, r.object), Object: r.object}
	})
}

// Headers implements [store.View].
func (v *view) Headers(prefix, after string) iter.Seq2[store.Header, error] {
	return scan(v, prefix, after, func(r *record) store.Header { return header(r.key, r.object) })
}

// scan iterates over the records whose keys have the prefix and come after the key after, converted
// by of. It yields an error if the view is closed, also if that happens during the iteration.
func scan[T any](v *view, prefix, after string, of func(*record) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := v.usable()
		if err == nil {
			v.keys.Ascend(max(prefix, after), func(key string, r *record) bool {
				if key == after {
					return true
				}
				if !strings.HasPrefix(key, prefix) || !yield(of(r), nil) {
					return false
				}
				err = v.usable()
				return err == nil
			})
		}
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}

// Horizon implements [store.View]. It is zero.
func (v *view) Horizon() (store.Horizon, error) { return store.Horizon{}, v.usable() }

// Changes implements [store.View].
func (v *view) Changes(string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		err := v.usable()
		if err == nil {
			err = store.ErrNoHistory
		}
		yield(store.Event{}, err)
	}
}

// Skips implements [store.View].
func (v *view) Skips(string) (bool, error) { return false, v.usable() }

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
