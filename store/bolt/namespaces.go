package bolt

import (
	"bytes"
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

// namespaces returns the namespaces that have objects, in order, by seeking from
// each to the next.
func (v *view) namespaces() ([]string, error) {
	cur, err := v.cursor(v.path(format.BucketObjects))
	if err != nil {
		return nil, err
	}
	var found []string
	clusterScoped := false
	use := func([]byte, []byte) {}
	k, err := v.step(func() ([]byte, []byte) { return cur.Seek(nil) }, use)
	for err == nil && k != nil {
		ns, _, ok := bytes.Cut(k, []byte{'/'})
		if !ok {
			clusterScoped = true
			at := k
			k, err = v.step(func() ([]byte, []byte) { return cur.Next(at) }, use)
			continue
		}
		found = append(found, string(ns))
		past := append(bytes.Clone(ns), '/'+1)
		k, err = v.step(func() ([]byte, []byte) { return cur.Seek(past) }, use)
	}
	if err != nil {
		return nil, err
	}
	if clusterScoped {
		found = append(found, "")
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
