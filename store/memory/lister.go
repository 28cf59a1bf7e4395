package memory

import (
	"strings"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// List implements [store.Lister].
func (c *collection) List() ([]*object.Object, error) {
	v, err := c.look()
	if err != nil {
		return nil, err
	}
	list := make([]*object.Object, 0, v.objects.count)
	for _, g := range v.objects.list {
		list = append(list, g.items...)
	}
	return list, nil
}

// ByIndex implements [store.Lister].
func (c *collection) ByIndex(index, value string) ([]*object.Object, error) {
	v, err := c.look()
	if err != nil {
		return nil, err
	}
	if index == store.NamespaceIndex {
		return v.namespace(value)
	}
	x, err := v.usableIndex(index)
	if err != nil {
		return nil, err
	}
	b, ok := x.values.get(value)
	if !ok {
		return nil, nil
	}
	return v.at(b.settled()), nil
}

// look returns a view that nobody has to close, since its reader is done before he returns.
func (c *collection) look() (view, error) {
	if c.db.closed.Load() {
		return view{}, c.wrap(store.ErrClosed)
	}
	s := c.snapshot()
	if s.gone {
		return view{}, c.wrap(store.ErrNoCollection)
	}
	return view{c: c, snapshot: s}, nil
}

// at returns the objects at keys: those that are filed, a page at a time.
func (v *view) at(keys *pages[*filed]) []*object.Object {
	list := make([]*object.Object, 0, keys.count)
	for _, g := range keys.list {
		n := len(list)
		if list = v.appendNewest(list, g.items); len(list) > n {
			continue
		}
		for _, key := range g.keys {
			o, _ := v.objects.get(key)
			list = append(list, o)
		}
	}
	return list
}

// appendNewest appends the objects that are filed where the view is the newest state and no
// writer is in the way, else nothing.
func (v *view) appendNewest(list []*object.Object, of []*filed) []*object.Object {
	if !v.c.hot.TryRLock() {
		return list
	}
	defer v.c.hot.RUnlock()
	if v.c.number.Load() != v.number {
		return list
	}
	for _, f := range of {
		list = append(list, f.object)
	}
	return list
}

// namespace returns the objects of a namespace. Those of one are neighbours; those of none
// are here and there.
func (v *view) namespace(ns string) (list []*object.Object, err error) {
	if ns != "" && !strings.Contains(ns, "/") {
		err = v.scan(ns+"/", "", func(_ []string, objects []*object.Object) bool {
			list = append(list, objects...)
			return true
		})
		return list, err
	}
	v.namespaceEntries(ns, "", func(e store.IndexEntry) bool {
		o, _ := v.objects.get(e.Key)
		list = append(list, o)
		return true
	})
	return list, nil
}
