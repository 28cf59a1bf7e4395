package bolt

import (
	"iter"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// namespaceKeys iterates over the keys in a namespace, empty for cluster-scoped objects. It
// needs no index: keys start with their namespace.
func (v *view) namespaceKeys(namespace, after string) iter.Seq2[string, error] {
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	keys := scan(v, v.path(format.BucketObjects), prefix, after, func(k, _ []byte) (string, error) { return string(k), nil })
	return func(yield func(string, error) bool) {
		for k, err := range keys {
			if err == nil && store.KeyNamespace(k) != namespace {
				continue
			}
			if !yield(k, err) {
				return
			}
		}
	}
}

// namespaceEntries iterates over the entries of the namespace index. It goes namespace by
// namespace: "a-b/x" comes before "a/x" in the order of keys, but after it in the order of
// namespaces.
func (v *view) namespaceEntries(prefix string, after store.IndexEntry) iter.Seq2[store.IndexEntry, error] {
	return func(yield func(store.IndexEntry, error) bool) {
		namespaces, err := v.namespaces()
		if err != nil {
			yield(store.IndexEntry{}, err)
			return
		}
		for _, ns := range namespaces {
			if !strings.HasPrefix(ns, prefix) || ns < after.Value {
				continue
			}
			from := ""
			if ns == after.Value {
				from = after.Key
			}
			for key, err := range v.namespaceKeys(ns, from) {
				if !yield(store.IndexEntry{Value: ns, Key: key}, err) {
					return
				}
			}
		}
	}
}

// namespaces returns the namespaces that have objects, in order, by seeking from each to the next.
func (v *view) namespaces() (found []string, err error) {
	cur, err := v.cursor(v.path(format.BucketObjects))
	if err != nil {
		return nil, err
	}
	move := func() ([]byte, []byte) { return cur.Seek(nil) }
	for {
		k, err := v.step(move, func([]byte, []byte) {})
		if err != nil || k == nil {
			slices.Sort(found)
			return slices.Compact(found), err
		}
		ns := store.KeyNamespace(string(k))
		if len(found) == 0 || found[len(found)-1] != ns {
			found = append(found, ns)
		}
		if ns == "" {
			move = func() ([]byte, []byte) { return cur.Next(k) }
		} else {
			move = func() ([]byte, []byte) { return cur.Seek([]byte(ns + string('/'+1))) }
		}
	}
}
