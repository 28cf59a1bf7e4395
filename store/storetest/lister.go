package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// lister is a collection that lists its objects without a view, as in store/memory. Each value is an
// object.
type lister interface {
	Values() (list []any, encoded int64, err error)   // in no order
	ValuesByIndex(index, value string) ([]any, error) // ordered by key
}

func objects(values []any, err error) ([]*object.Object, error) {
	list := make([]*object.Object, len(values))
	for i, v := range values {
		list[i], _ = v.(*object.Object)
	}
	return list, err
}

// DiffLists is Diff for the lists of a collection, if that is a lister.
func (m *Model) DiffLists(c store.Collection) error {
	l, ok := c.(lister)
	if !ok {
		return nil
	}
	all, encoded, err := l.Values()
	got, err := objects(all, err)
	if err == nil && encoded != int64(len(all)) {
		err = fmt.Errorf("%d objects, of which %d are counted as encoded", len(all), encoded)
	}
	if err == nil {
		slices.SortFunc(got, func(a, b *object.Object) int { return strings.Compare(a.Key(), b.Key()) })
		err = m.diffList(got, m.Keys("", ""))
	}
	if err != nil {
		return fmt.Errorf("in Values: %w", err)
	}
	for _, x := range m.Indexes {
		if err := m.diffByIndex(l, x.Name, m.Entries(x)); err != nil {
			return err
		}
	}
	if err := m.diffByIndex(l, store.NamespaceIndex, m.namespaceEntries()); err != nil {
		return err
	}
	_, err = l.ValuesByIndex("absent-index", "")
	return diffError("ValuesByIndex of none", err, store.ErrNoIndex)
}

func (m *Model) diffByIndex(l lister, index string, entries []store.IndexEntry) error {
	want := map[string][]string{"": nil, "a/x": nil, "absent": nil} // existing values, and some that may not exist
	for _, e := range entries {
		want[e.Value] = append(want[e.Value], e.Key)
	}
	for value, keys := range want {
		got, err := objects(l.ValuesByIndex(index, value))
		if err == nil {
			err = m.diffList(got, keys)
		}
		if err != nil {
			return fmt.Errorf("in ValuesByIndex %q of %q: %w", index, value, err)
		}
	}
	return nil
}

func (m *Model) diffList(got []*object.Object, keys []string) error {
	var want []*object.Object
	for _, key := range keys {
		want = append(want, m.Objects[key])
	}
	if !slices.EqualFunc(got, want, sameObject) {
		return fmt.Errorf("%d objects, want %d, or others", len(got), len(want))
	}
	return nil
}

// checkLists is check for the lists of a collection, each of which is of one generation.
func (g generations) checkLists(l lister) (n int, err error) {
	values, _, err := l.Values()
	all, err := objects(values, err)
	if err != nil || len(all) == 0 {
		return 0, fmt.Errorf("%d objects: %w", len(all), err)
	}
	rv := all[0].GetResourceVersion()
	if n, err = strconv.Atoi(rv); err != nil || len(all) != g.count(n) {
		return n, fmt.Errorf("%d objects, want %d: %w", len(all), g.count(n), err)
	}
	under, err := objects(l.ValuesByIndex("gen", rv))
	if len(under) != 0 && len(under) != g.count(n) || err != nil { // there may be a newer generation already
		return n, fmt.Errorf("%d objects in the index, want none or %d: %w", len(under), g.count(n), err)
	}
	for _, o := range append(all, under...) {
		if o == nil || o.GetResourceVersion() != rv {
			return n, fmt.Errorf("%v is not of generation %s", o, rv)
		}
	}
	return n, nil
}
