package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Model is one collection as a plain map: the expected content of a view. It is not safe for
// concurrent use.
type Model struct {
	Info       store.Info
	Checkpoint store.Checkpoint
	Synced     bool
	Objects    map[string]*object.Object
	Indexes    []store.Index

	// Building has the names of the indexes that were added to a collection with objects. In
	// a view such an index is complete, or is being built.
	Building map[string]bool

	attributes *store.Index // the index of the history, which is not among Indexes; nil for none
	history    history
}

// NewModel returns the model of a new collection.
func NewModel(info store.Info, indexes ...store.Index) *Model {
	m := &Model{Info: info, Objects: make(map[string]*object.Object)}
	m.Indexes, m.attributes = splitIndexes(indexes)
	return m
}

// splitIndexes returns the index of the history apart from the others.
func splitIndexes(all []store.Index) (indexes []store.Index, attributes *store.Index) {
	for _, x := range all {
		if x.History {
			attributes = &x
		} else {
			indexes = append(indexes, x)
		}
	}
	return indexes, attributes
}

// opened returns all indexes that the collection was opened with.
func (m *Model) opened() []store.Index {
	if m.attributes == nil {
		return m.Indexes
	}
	return append(slices.Clone(m.Indexes), *m.attributes)
}

// Clone returns a copy that does not change with m.
func (m *Model) Clone() *Model {
	c := *m
	c.Objects, c.Building = maps.Clone(m.Objects), maps.Clone(m.Building)
	c.history = m.history.clone()
	return &c
}

// Open does what [store.DB].Open does to a stored collection.
func (m *Model) Open(info store.Info, all ...store.Index) {
	indexes, attributes := splitIndexes(all)
	building := map[string]bool{}
	for _, x := range indexes {
		had := slices.ContainsFunc(m.Indexes, func(y store.Index) bool { return x.Name == y.Name && x.Spec == y.Spec })
		if len(m.Objects) > 0 && (!had || m.Building[x.Name]) {
			building[x.Name] = true
		}
	}
	m.Indexes, m.Building, m.attributes = indexes, building, attributes
	switch {
	case m.Info.Scope() == info.Scope():
		m.Info = info
	case !m.Synced:
		*m = *NewModel(info, all...)
	}
}

// Apply does what [store.Collection].Apply does.
func (m *Model) Apply(b store.Batch) {
	next := m.Checkpoint
	if b.Checkpoint != (store.Checkpoint{}) {
		next = b.Checkpoint
	}
	if m.Synced {
		m.history.record(m, b.Changes, next.RV)
		m.history.skip(m, b.Gap, next.RV)
	}
	m.change(b.Changes)
	m.Checkpoint = next
	if m.Synced {
		m.history.remember(m)
	}
}

// Replace changes the model like a [store.Replacement] that was started under info, took changes and was
// committed.
func (m *Model) Replace(info store.Info, changes []store.Change, cp store.Checkpoint) {
	goesOn := m.Info.Scope() == info.Scope() && store.ContinuesHistory(m.State(), cp)
	if goesOn {
		m.history.record(m, changes, cp.RV)
		m.history.skip(m, &store.Gap{}, cp.RV)
	}
	m.change(changes)
	m.Info, m.Checkpoint, m.Synced = info, cp, true
	if goesOn {
		m.history.remember(m)
	} else {
		m.history.begin(m)
	}
}

func (m *Model) change(changes []store.Change) {
	for _, ch := range changes {
		if ch.Object == nil {
			delete(m.Objects, ch.Key)
		} else {
			m.Objects[ch.Key] = ch.Object
		}
	}
}

// State returns the expected state of a view.
func (m *Model) State() store.State {
	s := store.State{Checkpoint: m.Checkpoint, Synced: m.Synced, Count: int64(len(m.Objects))}
	for _, o := range m.Objects {
		s.Bytes += int64(o.Size())
	}
	return s
}

// Keys returns the keys with the prefix that come after the key after, in order.
func (m *Model) Keys(prefix, after string) []string {
	var keys []string
	for key := range m.Objects {
		if strings.HasPrefix(key, prefix) && (after == "" || key > after) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Entries returns the expected entries of an index, in order.
func (m *Model) Entries(x store.Index) []store.IndexEntry {
	var entries []store.IndexEntry
	for key, o := range m.Objects {
		for _, v := range x.Values(o) {
			entries = append(entries, store.IndexEntry{Value: v, Key: key})
		}
	}
	return sortEntries(entries)
}

// namespaceEntries returns the expected entries of [store.NamespaceIndex], in order.
func (m *Model) namespaceEntries() []store.IndexEntry {
	var entries []store.IndexEntry
	for key := range m.Objects {
		entries = append(entries, store.IndexEntry{Value: store.KeyNamespace(key), Key: key})
	}
	return sortEntries(entries)
}

func sortEntries(entries []store.IndexEntry) []store.IndexEntry {
	slices.SortFunc(entries, store.IndexEntry.Compare)
	return entries
}

// Equal fails the test if a view differs from the model.
func (m *Model) Equal(t T, v store.View) {
	t.Helper()
	if err := m.Diff(v); err != nil {
		t.Fatalf("view of %s: %v", m.Info.ID, err)
	}
}

// Diff returns the first difference between a view and the model in the results of all methods of
// the view; nil if there is none.
func (m *Model) Diff(v store.View) error {
	if got := v.Info(); got != m.Info {
		return fmt.Errorf("Info: %+v, want %+v", got, m.Info)
	}
	if got, want := v.State(), m.State(); !sameState(got, want) {
		return fmt.Errorf("State: %+v, want %+v", got, want)
	}
	if err := m.DiffRange(v, "", ""); err != nil {
		return err
	}
	if err := m.diffGet(v); err != nil {
		return err
	}
	if err := m.diffHistory(v); err != nil {
		return err
	}
	return m.diffIndexes(v)
}

// DiffRange is the part of Diff for Objects, Records and Headers of a prefix and a key.
func (m *Model) DiffRange(v store.View, prefix, after string) error {
	var objects []*object.Object
	var headers []store.Header
	for _, key := range m.Keys(prefix, after) {
		objects = append(objects, m.Objects[key])
		headers = append(headers, m.header(key))
	}
	call := fmt.Sprintf("(%q, %q)", prefix, after)
	if err := diffSeq("Objects"+call, v.Objects(prefix, after), objects, sameObject); err != nil {
		return err
	}
	if err := diffSeq("Records"+call, decoded(v.Records(prefix, after)), objects, sameObject); err != nil {
		return err
	}
	return diffSeq("Headers"+call, v.Headers(prefix, after), headers, equal)
}

// decoded returns the objects of records. It fails if a record can't be decoded, or has the header of
// another object.
func decoded(records iter.Seq2[store.Record, error]) iter.Seq2[*object.Object, error] {
	return func(yield func(*object.Object, error) bool) {
		var buf []byte
		for rec, err := range records {
			o := rec.Object
			if err == nil && o == nil {
				buf, err = rec.Raw(buf)
			}
			if err == nil && o == nil {
				o, err = object.FromValid(bytes.Clone(buf))
			}
			if err == nil && rec.Header != headerOf(o) {
				err = fmt.Errorf("a record of %s has the header %+v", show(o), rec.Header)
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

func (m *Model) header(key string) store.Header {
	return headerOf(m.Objects[key])
}

func headerOf(o *object.Object) store.Header {
	return store.Header{Key: o.Key(), UID: string(o.GetUID()), RV: o.GetResourceVersion(), Bytes: o.Size()}
}

func (m *Model) diffGet(v store.View) error {
	for key, want := range m.Objects {
		got, err := v.Get(key)
		if err != nil {
			return fmt.Errorf("Get(%q): %w", key, err)
		}
		if !sameObject(got, want) {
			return fmt.Errorf("Get(%q): %s, want %s", key, show(got), show(want))
		}
		buf := make([]byte, 1, 64) // too small for some
		raw, err := v.Raw(key, buf)
		if err != nil {
			return fmt.Errorf("Raw(%q): %w", key, err)
		}
		if !bytes.Equal(raw, want.Raw()) {
			return fmt.Errorf("Raw(%q): %s, want %s", key, raw, want.Raw())
		}
		h, err := v.Header(key)
		if err != nil {
			return fmt.Errorf("Header(%q): %w", key, err)
		}
		if h != m.header(key) {
			return fmt.Errorf("Header(%q): %+v, want %+v", key, h, m.header(key))
		}
	}
	for _, key := range []string{"absent", "absent/absent"} {
		if _, ok := m.Objects[key]; ok {
			continue
		}
		_, err := v.Get(key)
		if err := diffError("Get of an absent key", err, store.ErrNotFound); err != nil {
			return err
		}
		_, err = v.Raw(key, nil)
		if err := diffError("Raw of an absent key", err, store.ErrNotFound); err != nil {
			return err
		}
		_, err = v.Header(key)
		if err := diffError("Header of an absent key", err, store.ErrNotFound); err != nil {
			return err
		}
	}
	return nil
}

// diffError returns an error if err is not the error want.
func diffError(what string, err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("%s: error %q, want %q", what, fmt.Sprint(err), fmt.Sprint(want))
}

func (m *Model) diffIndexes(v store.View) error {
	var complete, building []string
	for _, x := range m.Indexes {
		if m.isBuilding(v, x.Name) {
			building = append(building, x.Name)
		} else {
			complete = append(complete, x.Name)
		}
	}
	slices.Sort(complete)
	slices.Sort(building)
	if got := v.Indexes(); !slices.Equal(got, complete) {
		return fmt.Errorf("names of indexes: %q, want %q", got, complete)
	}
	if got := v.Building(); !slices.Equal(got, building) {
		return fmt.Errorf("names of indexes that are being built: %q, want %q", got, building)
	}
	for _, x := range m.Indexes {
		if !m.isReadable(v, x) {
			continue
		}
		if err := diffIndex(v, x.Name, m.Entries(x)); err != nil {
			return err
		}
	}
	if err := diffIndex(v, store.NamespaceIndex, m.namespaceEntries()); err != nil {
		return err
	}
	return diffRefused(v, "absent-index", store.ErrNoIndex)
}

// isBuilding reports whether an index may be incomplete and is, in the view.
func (m *Model) isBuilding(v store.View, name string) bool {
	return m.Building[name] && !slices.Contains(v.Indexes(), name)
}

// isReadable reports whether an index can be read. One that is being built with a program's own
// function may not: the store knows that function only if the collection is open.
func (m *Model) isReadable(v store.View, x store.Index) bool {
	if _, known := store.IndexFromSpec(x.Name, x.Spec); known || !m.isBuilding(v, x.Name) {
		return true
	}
	for _, err := range v.IndexKeys(x.Name, "", "") {
		return !errors.Is(err, store.ErrNoIndex)
	}
	return true
}

// diffRefused returns an error unless each iteration over an index yields one error, want.
func diffRefused(v store.View, name string, want error) error {
	var errs []error
	for _, err := range v.IndexKeys(name, "", "") {
		errs = append(errs, err)
	}
	for _, err := range v.IndexEntries(name, "", store.IndexEntry{}) {
		errs = append(errs, err)
	}
	if len(errs) != 2 {
		return fmt.Errorf("index %q: IndexKeys and IndexEntries yield %d, want one error each", name, len(errs))
	}
	for _, err := range errs {
		if err := diffError(fmt.Sprintf("reading the index %q", name), err, want); err != nil {
			return err
		}
	}
	return nil
}

// DiffIndexRange is the part of Diff for the entries of all indexes whose values start with a
// prefix and that come after an entry, and for the keys of a value that come after that entry's
// key.
func (m *Model) DiffIndexRange(v store.View, prefix string, after store.IndexEntry) error {
	want := map[string][]store.IndexEntry{store.NamespaceIndex: m.namespaceEntries()}
	for _, x := range m.Indexes {
		if m.isReadable(v, x) {
			want[x.Name] = m.Entries(x)
		}
	}
	for name, all := range want {
		var entries []store.IndexEntry
		var keys []string
		for _, e := range all {
			if strings.HasPrefix(e.Value, prefix) && e.Compare(after) > 0 {
				entries = append(entries, e)
			}
			if e.Value == prefix && e.Key > after.Key {
				keys = append(keys, e.Key)
			}
		}
		call := fmt.Sprintf("IndexEntries(%q, %q, %+q)", name, prefix, after)
		if err := diffSeq(call, v.IndexEntries(name, prefix, after), entries, equal); err != nil {
			return err
		}
		call = fmt.Sprintf("IndexKeys(%q, %q, %q)", name, prefix, after.Key)
		if err := diffSeq(call, v.IndexKeys(name, prefix, after.Key), keys, equal); err != nil {
			return err
		}
	}
	return nil
}

func diffIndex(v store.View, name string, want []store.IndexEntry) error {
	if err := diffSeq(fmt.Sprintf("IndexEntries(%q)", name), v.IndexEntries(name, "", store.IndexEntry{}), want, equal); err != nil {
		return err
	}
	keys := map[string][]string{"absent-value": nil, "": nil}
	for _, e := range want {
		keys[e.Value] = append(keys[e.Value], e.Key)
	}
	for value, want := range keys {
		if err := diffSeq(fmt.Sprintf("IndexKeys(%q, %q)", name, value), v.IndexKeys(name, value, ""), want, equal); err != nil {
			return err
		}
	}
	return nil
}

// diffSeq compares the items of an iteration with a list.
func diffSeq[E any](what string, got iter.Seq2[E, error], want []E, same func(a, b E) bool) error {
	i := 0
	for e, err := range got {
		switch {
		case err != nil:
			return fmt.Errorf("%s: item %d: error %w", what, i, err)
		case i == len(want):
			return fmt.Errorf("%s: item %d of %d: %s", what, i, len(want), show(e))
		case !same(e, want[i]):
			return fmt.Errorf("%s: item %d: %s, want %s", what, i, show(e), show(want[i]))
		}
		i++
	}
	if i < len(want) {
		return fmt.Errorf("%s: ends before item %d of %d: %s", what, i, len(want), show(want[i]))
	}
	return nil
}

func show(e any) string {
	if o, ok := e.(*object.Object); ok {
		if o == nil {
			return "no object"
		}
		return string(o.Raw())
	}
	return fmt.Sprintf("%+v", e)
}

func equal[E comparable](a, b E) bool { return a == b }

// sameObject compares the stored parts of two objects: bytes and parsed metadata.
func sameObject(a, b *object.Object) bool {
	return a != nil && bytes.Equal(a.Raw(), b.Raw()) && a.Key() == b.Key() && a.Kind() == b.Kind() &&
		a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion() && maps.Equal(a.Labels(), b.Labels())
}

// sameState compares two states without the locations of their times, which an encoding drops.
func sameState(a, b store.State) bool {
	return sameCheckpoint(a.Checkpoint, b.Checkpoint) && a.Synced == b.Synced && a.Count == b.Count && a.Bytes == b.Bytes
}

func sameCheckpoint(a, b store.Checkpoint) bool {
	return a.RV == b.RV && a.Cluster == b.Cluster && a.ListReason == b.ListReason &&
		a.LastEvent.Equal(b.LastEvent) && a.LastBookmark.Equal(b.LastBookmark) && a.LastList.Equal(b.LastList)
}
