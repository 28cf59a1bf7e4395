package informer

import (
	"slices"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// newest holds the objects with the highest resourceVersions in a collection, highest first, for
// [store.Checkpoint.Newest]. After a deletion it has one object less until the next change.
type newest []ranked

type ranked struct{ key, rv string }

// newestOf returns the objects that a collection's checkpoint names.
func newestOf(c store.Collection) newest {
	v, err := c.View()
	if err != nil {
		return nil // the next read returns the error
	}
	defer v.Close()
	var n newest
	for _, key := range v.State().Newest {
		if key == "" {
			continue
		}
		if h, err := v.Header(key); err == nil {
			n.put(key, h.RV)
		}
	}
	return n
}

// after returns the newest objects once changes are applied.
func (n newest) after(changes []store.Change) newest {
	n = slices.Clone(n)
	for _, ch := range changes {
		n = slices.DeleteFunc(n, func(v ranked) bool { return v.key == ch.Key })
		if ch.Object != nil {
			n.put(ch.Key, ch.Object.GetResourceVersion())
		}
	}
	return n
}

// put inserts a key that n does not have. If its resourceVersion can't be compared, it counts as
// newer, since it came later.
func (n *newest) put(key, rv string) {
	at := slices.IndexFunc(*n, func(v ranked) bool {
		cmp, ok := object.CompareRV(rv, v.rv)
		return !ok || cmp > 0
	})
	switch {
	case at >= 0:
		*n = slices.Insert(*n, at, ranked{key, rv})
	case len(*n) < store.NewestKeys:
		*n = append(*n, ranked{key, rv})
	}
	*n = (*n)[:min(len(*n), store.NewestKeys)]
}

// keys returns the keys for the checkpoint.
func (n newest) keys() (keys [store.NewestKeys]string) {
	for i, v := range n {
		keys[i] = v.key
	}
	return keys
}
