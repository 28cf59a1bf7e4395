package informer

import (
	"crypto/rand"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// unnamed returns a name for a transform or an index without one, different in each run.
func unnamed() string { return "of this run: " + rand.Text() }

// storeIndexes returns the store's indexes for client-go's indexers.
func (x *Indexer) storeIndexes(indexers cache.Indexers) []store.Index {
	var indexes []store.Index
	for _, name := range slices.Sorted(maps.Keys(indexers)) {
		if !builtin(name, indexers[name]) {
			indexes = append(indexes, x.storeIndex(name, indexers[name]))
		}
	}
	return indexes
}

func (x *Indexer) storeIndex(name string, fn cache.IndexFunc) store.Index {
	spec := "func:" + name + " " + x.unnamed
	if v, ok := x.opts.versions[name]; ok {
		spec = "func:" + name + "@" + v
	}
	return store.Index{Name: storeName(name, fn), Spec: spec, Func: func(o *object.Object) []string {
		var values []string
		// The store calls this under its locks or in the background.
		err := guarded(x.logger(), func() error {
			decoded, err := x.decoder.exact(o)
			if err == nil {
				values, err = fn(decoded)
			}
			return err
		})
		if err == nil {
			tooLong := func(v string) bool { return len(v) > store.MaxIndexValueBytes }
			if i := slices.IndexFunc(values, tooLong); i >= 0 {
				x.failed(fmt.Errorf("index %s: %s is not filed under a value that is too long: %d bytes, and at most %d can be stored",
					name, o.Key(), len(values[i]), store.MaxIndexValueBytes))
			}
			return values // the store leaves out values that are too long
		}
		x.failed(fmt.Errorf("index %s: %s is not in it: %w", name, o.Key(), err))
		return nil
	}}
}

// builtin reports whether an index is the one that every collection has.
func builtin(name string, fn cache.IndexFunc) bool {
	return name == cache.NamespaceIndex &&
		reflect.ValueOf(fn).Pointer() == reflect.ValueOf(cache.MetaNamespaceIndexFunc).Pointer()
}

// storeName returns the name of an index in the store, where a program's index can't have the name
// of the built-in one.
func storeName(name string, fn cache.IndexFunc) string {
	if name == store.NamespaceIndex && !builtin(name, fn) {
		return name + " of the program"
	}
	return name
}

// storeValue returns an index value as the store holds it. See [store.Index.Values].
func storeValue(v string) string { return strings.ReplaceAll(v, "\x00", "\uFFFD") }
