package informer

import (
	"slices"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// newest are the objects with the highest resourceVersions that a collection holds,
// highest first, as far as they are known: of what was deleted nothing takes the
// place before the next change. They are what [store.Checkpoint.Newest] names.
type newest []ranked

type ranked struct{ key, rv string }

// newestOf reads what a collection's checkpoint names.
func newestOf(c store.Collection) newest {
	v, err := c.View()
	if err != nil {
		return nil // whoever reads on learns of it
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

// after returns what they are once changes are made.
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

// put files a key that is not there. What can't be compared counts as newer: it came
// later.
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

// keys is what the checkpoint names.
func (n newest) keys() (keys [store.NewestKeys]string) {
	for i, v := range n {
		keys[i] = v.key
	}
	return keys
}
