package storetest

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// property runs random actions on a store and its model.
func property(t *testing.T, open func(t T) Harness) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt, open(rt))
		rt.Repeat(map[string]func(*rapid.T){
			"":            m.check,
			"apply":       m.apply,
			"begin":       m.begin,
			"replace":     m.replace,
			"commit":      m.commit,
			"abort":       m.abort,
			"use ended":   m.useEnded,
			"open":        m.open,
			"open twice":  m.openTwice,
			"close":       m.close,
			"drop":        m.drop,
			"reopen":      m.reopen,
			"keep view":   m.keep,
			"close views": m.closeKept,
			"settle":      m.settle,
		})
	})
}

// machine is a store with two collections, the model of each, and views of earlier states.
type machine struct {
	h        Harness
	subjects []*drive // by ID
	kept     []kept
	rv       int // the newest resourceVersion; every object and checkpoint gets one of its own
}

// drive is a collection under random test. After a reopening its subject's coll is nil until it is
// opened; subject is nil while the collection does not exist.
type drive struct {
	id string
	*subject
	repl    store.Replacement
	pending []store.Change    // the changes of repl
	ended   store.Replacement // the replacement before repl
	read    store.Lookup      // the newest one; nil for none
	last    store.Collection  // the opening before; nil for none
}

// kept is a view with the model of its state.
type kept struct {
	view  store.View
	model *Model
}

const maxKept = 3

func newMachine(t *rapid.T, h Harness) *machine {
	m := &machine{h: h}
	for _, id := range []string{"pods", "pods@shop"} {
		m.subjects = append(m.subjects, &drive{id: id})
	}
	t.Cleanup(func() { m.closeKept(t) })
	return m
}

// draw returns a collection, for the action to work on.
func (m *machine) draw(t *rapid.T) *drive {
	return m.subjects[rapid.IntRange(0, len(m.subjects)-1).Draw(t, "collection")]
}

// drawOpen is draw for actions that need the collection to be open.
func (m *machine) drawOpen(t *rapid.T) *drive {
	d := m.draw(t)
	switch {
	case d.subject == nil:
		d.subject = newSubject(t, m.h, Info(d.id), drawIndexes(t)...)
	case d.coll == nil:
		d.open(t, drawInfo(t, d.id), drawIndexes(t)...)
	}
	return d
}

func drawInfo(t *rapid.T, id string) store.Info {
	info := Info(id)
	info.Namespace = rapid.SampledFrom([]string{"", "", "shop"}).Draw(t, "namespace")
	info.Transform = rapid.SampledFrom([]string{"", "", "drop:x"}).Draw(t, "transform")
	return info
}

func drawIndexes(t *rapid.T) []store.Index {
	var indexes []store.Index
	for _, definitions := range [][]store.Index{
		{store.LabelIndex("app", "app"), store.LabelIndex("app", "tags")},
		{store.FieldIndex("payload", "data.payload")},
		{tagIndex()},
		{attributesIndex("v1"), attributesIndex("v2")},
	} {
		if i := rapid.IntRange(0, len(definitions)).Draw(t, "index"); i > 0 {
			indexes = append(indexes, definitions[i-1])
		}
	}
	return rapid.Permutation(indexes).Draw(t, "indexes")
}

var (
	namespaces = []string{"", "a", "a-b", "ab"}
	names      = []string{"x", "y", "y-1"}
)

func drawKey(t *rapid.T) (ns, name string) {
	return rapid.SampledFrom(namespaces).Draw(t, "ns"), rapid.SampledFrom(names).Draw(t, "name")
}

// changes draws changes. Their keys may repeat.
func (m *machine) changes(t *rapid.T) []store.Change {
	var changes []store.Change
	for range rapid.IntRange(0, 8).Draw(t, "changes") {
		ns, name := drawKey(t)
		m.rv++
		if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
			gone := Delete(strings.TrimPrefix(ns+"/"+name, "/"))
			if rapid.Bool().Draw(t, "deleted at") {
				gone.RV = strconv.Itoa(m.rv)
			}
			changes = append(changes, gone)
			continue
		}
		labels := make(map[string]string)
		if app := rapid.SampledFrom([]string{"none", "", "a", "ab"}).Draw(t, "app"); app != "none" {
			labels["app"] = app
		}
		labels["tags"] = rapid.SampledFrom([]string{"", "red", "blue red", "red blue red"}).Draw(t, "tags")
		payload := rapid.SampledFrom([]string{"", "a", "b/c", strings.Repeat("long ", 50)}).Draw(t, "payload")
		uid := rapid.SampledFrom([]string{"u1", "u1", "u1", "u2"}).Draw(t, "uid")
		changes = append(changes, Put(Object(ns, name, uid, strconv.Itoa(m.rv), labels, payload)))
	}
	return changes
}

// uniqueKeys returns the last change of each key.
func uniqueKeys(changes []store.Change) []store.Change {
	seen := make(map[string]bool)
	var unique []store.Change
	for _, ch := range slices.Backward(changes) {
		if !seen[ch.Key] {
			seen[ch.Key] = true
			unique = append(unique, ch)
		}
	}
	return unique
}

// checkpoint returns a checkpoint past all changes so far. For a list it mostly continues the
// history.
func (m *machine) checkpoint(t *rapid.T) store.Checkpoint {
	m.rv += rapid.SampledFrom([]int{1, 20}).Draw(t, "step")
	cp := Checkpoint(m.rv)
	cp.Cluster = rapid.SampledFrom([]string{"one", "one", "one", "one", "one", "two"}).Draw(t, "cluster")
	cp.ListReason = rapid.SampledFrom([]store.Reason{
		store.ReasonExpired, store.ReasonExpired, store.ReasonSilentClose, store.ReasonRequested, store.ReasonRVAhead,
	}).Draw(t, "reason")
	return cp
}

func (m *machine) apply(t *rapid.T) {
	d, changes, cp := m.drawOpen(t), uniqueKeys(m.changes(t)), none
	if rapid.Bool().Draw(t, "checkpoint") {
		cp = m.checkpoint(t)
	}
	if d.repl != nil {
		err := d.coll.Apply(store.Batch{Changes: changes, Checkpoint: cp})
		require.ErrorIs(t, err, store.ErrReplacing)
		return
	}
	if d.coll.Info().Scope() != d.want.Scope() {
		err := d.coll.Apply(store.Batch{Changes: changes, Checkpoint: cp})
		require.ErrorIs(t, err, store.ErrScope)
		return
	}
	if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
		at := rapid.IntRange(0, len(changes)).Draw(t, "at")
		changes = slices.Insert(changes, at, store.Change{Object: cm("a", "x", m.rv)})
		require.Error(t, d.coll.Apply(store.Batch{Changes: changes, Checkpoint: cp}), "a change without a key")
		return
	}
	b := store.Batch{Changes: changes, Checkpoint: cp, Read: d.lookUp(t, changes)}
	if rapid.IntRange(0, 2).Draw(t, "gap") == 0 {
		rv := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"", "x", strconv.Itoa(m.rv - rapid.IntRange(-2, 25).Draw(t, "before"))}).Draw(t, "rv")
		})
		b.Gap = &store.Gap{First: rv.Draw(t, "first"), Last: rv.Draw(t, "last")}
	}
	d.applyBatch(t, b)
}

// lookUp returns the reads of a batch's caller: some of the keys that it changes, or the reads of an
// earlier batch, or none.
func (d *drive) lookUp(t *rapid.T, changes []store.Change) store.Lookup {
	switch rapid.IntRange(0, 3).Draw(t, "read") {
	case 0:
		return nil
	case 1:
		return d.read
	}
	d.read = d.coll.Lookup()
	for _, ch := range changes {
		want, stored := d.model.Objects[ch.Key]
		var err error
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			continue
		case 1:
			var h store.Header
			if h, err = d.read.Header(ch.Key); stored {
				require.Equal(t, want.GetResourceVersion(), h.RV, "header of %s", ch.Key)
			}
		case 2:
			var o *object.Object
			if o, err = d.read.Get(ch.Key); stored {
				require.Equal(t, string(want.Raw()), string(o.Raw()), "object at %s", ch.Key)
			}
		}
		if stored {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, store.ErrNotFound)
		}
	}
	return d.read
}

func (m *machine) begin(t *rapid.T) {
	d := m.drawOpen(t)
	if d.repl == nil {
		d.begin(t)
		return
	}
	_, err := d.coll.Replace()
	require.ErrorIs(t, err, store.ErrReplacing)
}

func (d *drive) begin(t *rapid.T) { d.repl, d.pending = d.subject.begin(t), nil }

// drawReplacing is drawOpen for actions that need a replacement.
func (m *machine) drawReplacing(t *rapid.T) *drive {
	d := m.drawOpen(t)
	if d.repl == nil {
		d.begin(t)
	}
	return d
}

func (m *machine) replace(t *rapid.T) {
	d := m.drawReplacing(t)
	changes := m.changes(t)
	d.pending = append(d.pending, changes...) // before a store could change them
	require.NoError(t, d.repl.Apply(changes))
}

func (m *machine) commit(t *rapid.T) {
	d := m.drawReplacing(t)
	d.commit(t, d.repl, m.checkpoint(t), d.pending...)
	d.endReplacement(t) // the abort must not undo the commit
}

func (m *machine) abort(t *rapid.T) {
	m.drawReplacing(t).endReplacement(t)
}

func (d *drive) endReplacement(t *rapid.T) {
	if d.repl != nil {
		require.NoError(t, d.repl.Abort())
		d.ended = d.repl
	}
	d.repl, d.pending = nil, nil
}

// useEnded uses a replacement that has ended, which must have no effect.
func (m *machine) useEnded(t *rapid.T) {
	d := m.draw(t)
	if d.ended == nil {
		t.Skip("no replacement has ended")
	}
	require.True(t, isEnded(d.ended))
	require.NoError(t, d.ended.Abort())
}

// open opens a collection under any scope and with any indexes.
func (m *machine) open(t *rapid.T) {
	d := m.drawOpen(t)
	d.endReplacement(t)
	d.open(t, drawInfo(t, d.id), drawIndexes(t)...)
}

// openTwice opens a collection that has an owner, and an ended opening of it.
func (m *machine) openTwice(t *rapid.T) {
	d := m.drawOpen(t)
	_, err := wrapped{m.h.DB()}.Open(drawInfo(t, d.id), drawIndexes(t)...)
	require.ErrorIs(t, err, store.ErrInUse)
	if d.last != nil {
		require.Error(t, d.last.Apply(store.Batch{Checkpoint: m.checkpoint(t)}))
		_, err := d.last.Replace()
		require.Error(t, err)
		require.NoError(t, d.last.Close())
	}
}

// close gives a collection up, with or without a replacement that has not ended.
func (m *machine) close(t *rapid.T) {
	d := m.drawOpen(t)
	if d.last = d.coll; d.repl != nil {
		d.ended = d.repl
	}
	d.subject.close(t)
	d.repl, d.pending, d.read = nil, nil, nil
}

// settle waits for all indexes.
func (m *machine) settle(t *rapid.T) {
	for _, d := range m.subjects {
		if d.subject != nil && d.repl != nil {
			t.Skip("a replacement is open")
		}
	}
	for _, d := range m.subjects {
		if d.subject != nil && d.coll != nil {
			d.subject.settle(t)
		}
	}
}

func (m *machine) drop(t *rapid.T) {
	d := m.draw(t)
	if d.subject == nil {
		dropAbsent(t, m.h, d.id)
		return
	}
	d.endReplacement(t)
	require.NoError(t, m.h.DB().Drop(d.id))
	if d.coll != nil {
		d.last = d.coll
	}
	d.subject = nil
}

func (m *machine) reopen(t *rapid.T) {
	if !m.h.Durable() {
		t.Skip("the store is not durable")
	}
	m.closeKept(t)
	m.h.Reopen(t)
	for _, d := range m.subjects {
		d.repl, d.pending, d.ended, d.last = nil, nil, nil, nil // closed with the store
		if d.subject != nil {
			d.coll = nil
		}
	}
}

func (m *machine) keep(t *rapid.T) {
	d := m.draw(t)
	if d.subject == nil {
		t.Skip("no such collection")
	}
	if len(m.kept) == maxKept {
		m.kept[0].view.Close()
		m.kept = slices.Delete(m.kept, 0, 1)
	}
	v, err := m.h.DB().View(d.id)
	require.NoError(t, err)
	m.kept = append(m.kept, kept{v, d.model.Clone()})
}

func (m *machine) closeKept(*rapid.T) {
	for _, k := range m.kept {
		k.view.Close()
	}
	m.kept = nil
}

// check compares collections and views with the models.
func (m *machine) check(t *rapid.T) {
	var infos []store.Info
	for _, d := range m.subjects {
		if d.subject == nil {
			_, err := m.h.DB().View(d.id)
			require.ErrorIs(t, err, store.ErrNoCollection)
			continue
		}
		d.check(t)
		infos = append(infos, d.model.Info)
	}
	got, err := m.h.DB().Collections()
	require.NoError(t, err)
	require.True(t, slices.Equal(got, infos), "Collections: %+v, want %+v", got, infos)
	for _, k := range m.kept {
		k.model.Equal(t, k.view)
	}
	m.checkRange(t)
}

func (m *machine) checkRange(t *rapid.T) {
	d := m.draw(t)
	if d.subject == nil {
		return
	}
	prefix := rapid.SampledFrom([]string{"", "a", "a/", "a-b/y", "ab/", "y", "z"}).Draw(t, "prefix")
	after := rapid.SampledFrom([]string{"", "a", "a/x", "a/x1", "a-b/y", "ab/", "ab/y-1", "y", "z"}).Draw(t, "after")
	v, err := m.h.DB().View(d.id)
	require.NoError(t, err)
	defer v.Close()
	require.NoError(t, d.model.DiffRange(v, prefix, after))

	value := rapid.SampledFrom([]string{"", "a", "a-b", "ab", "b", "red", "re", "long", "z"}).Draw(t, "value")
	from := store.IndexEntry{
		Value: rapid.SampledFrom([]string{"", "a", "a\x00", "a-b", "ab", "b/c", "blue", "red", "red\x00x", "z"}).Draw(t, "from"),
		Key:   after,
	}
	require.NoError(t, d.model.DiffIndexRange(v, value, from))
}
