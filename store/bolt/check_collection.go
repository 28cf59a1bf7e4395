package bolt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/history"
)

// collections returns the IDs of the collections. It checks that their dictionaries exist, and
// notes leftover generations.
func (c *check) collections(tx *boltfile.Tx) (ids []string, err error) {
	all := tx.Bucket(format.BucketCollections)
	cur := all.Cursor()
	last := ""
	for k, v := cur.First(); k != nil; k, v = cur.Next() {
		id := string(k)
		if last != "" && id <= last {
			return nil, fmt.Errorf("collections: %w", boltfile.ErrOrder)
		}
		last = id
		if v != nil {
			c.report.problem(Problem{Reason: fmt.Sprintf("collection %q is not a bucket", id)})
			continue
		}
		ids = append(ids, id)
		b := all.Bucket(k)
		names, err := leftovers(c.path, id, b)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			c.report.note(Problem{Collection: id, Reason: fmt.Sprintf("%s is what a replacement left that did not end; the next opening deletes it", name)})
		}
		dicts, err := format.DecodeDictIDs(id, b.Get(format.KeyDict))
		if err != nil {
			c.report.failed(id, corruptValue(c.path, id, format.KeyDict, err))
		}
		for _, n := range dicts {
			if tx.Bucket(format.BucketDict).Get(format.DictKey(n)) == nil {
				c.report.problem(Problem{Collection: id, Reason: fmt.Sprintf("its dictionary %d is missing", n)})
			}
		}
	}
	return ids, nil
}

// collection checks one collection through a view, which includes the journal's changes.
func (c *check) collection(id string) {
	v, err := c.db.newView(id)
	if err != nil {
		c.report.failed(id, err)
		return
	}
	defer v.Close()
	defer context.AfterFunc(c.ctx, v.Close)() // which ends the scan that is in progress
	x := &collectionCheck{check: c, view: v, id: id, keys: map[string]bool{}}
	if err := x.run(); err != nil {
		c.report.failed(id, err)
	}
	c.report.Collections = append(c.report.Collections, x.counted)
	c.progress(id, x.counted.Objects)
}

// collectionCheck is the check of one collection.
type collectionCheck struct {
	*check
	view    *view
	id      string
	counted CheckedCollection

	keys    map[string]bool // by key, whether the record is corrupt
	corrupt int64           // number of corrupt records
	ahead   int64           // records with a resourceVersion past the checkpoint's

	indexes []*indexCheck
	history *feedCheck
}

// indexCheck is one index with the entries that it must hold.
type indexCheck struct {
	store.Index
	known   bool            // the function is known
	entries map[string]bool // by format.IndexKey, whether the entry was found

	building bool // entries of objects whose key is greater than after may be missing
	after    string
}

func (x *collectionCheck) problem(key, format string, args ...any) {
	x.report.problem(Problem{Collection: x.id, Key: key, Reason: fmt.Sprintf(format, args...)})
}

func (x *collectionCheck) run() error {
	if err := x.view.read(func() error { x.description(); return x.loadIndexes() }); err != nil {
		return err
	}
	head, err := x.view.head()
	if err != nil {
		return err
	}
	x.history = &feedCheck{head: head, recent: map[string]string{}, deletions: map[string]bool{}}
	state := x.view.state
	x.counted = CheckedCollection{ID: x.id, RV: state.RV, Synced: state.Synced}
	if err := x.view.all(x.view.path(format.BucketObjects), x.record); err != nil {
		return err
	}
	x.totals(state)
	x.versions(state)
	for _, i := range x.indexes {
		x.index(i)
	}
	x.feed()
	return nil
}

// description notes a corrupt description, which harms no object.
func (x *collectionCheck) description() {
	if raw := x.view.rawDescription(); raw != nil {
		if _, err := format.VerifyChecksum(x.id, format.KeyDescription, raw); err != nil {
			x.report.note(Problem{Collection: x.id, Reason: fmt.Sprintf("%s: %v; it counts as missing and is fetched again", format.KeyDescription, err)})
		}
	}
}

// loadIndexes reads the definitions of the indexes, complete or not.
func (x *collectionCheck) loadIndexes() error {
	specs, err := decodeValue[definitions](x.path, x.id, format.KeyIndexes, x.view.lookup(x.view.base, format.KeyIndexes))
	if err != nil {
		return err
	}
	build, err := x.db.decodeBuilding(x.id, x.view.lookup(x.view.base, format.KeyBuilding))
	if err != nil {
		x.report.failed(x.id, err)
	}
	for _, name := range slices.Sorted(maps.Keys(build.Indexes)) {
		x.report.note(Problem{Collection: x.id, Reason: fmt.Sprintf("index %s is being built", name)})
		if _, both := specs[name]; both {
			x.problem("", "index %s is complete and being built", name)
		}
		specs[name] = build.Indexes[name]
	}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		i := &indexCheck{entries: map[string]bool{}}
		if i.Index, i.known = store.IndexFromSpec(name, specs[name]); !i.known {
			i.Name = name
		}
		if _, i.building = build.Indexes[name]; i.building {
			i.after = build.After
		}
		x.indexes = append(x.indexes, i)
	}
	return nil
}

// record checks one record, and collects the entries that it must have in indexes and feed.
func (x *collectionCheck) record(k, b []byte) {
	key := string(k)
	x.counted.Objects++
	if x.counted.Objects%progressRecords == 0 {
		x.progress(x.id, x.counted.Objects)
	}
	r, o, err := x.decode(key, b)
	x.keys[key] = err != nil
	if err != nil {
		x.corrupt++
		x.report.CorruptRecords++
		x.problem(key, "%s", reason(err))
		return
	}
	x.counted.Bytes += int64(r.Size)
	switch {
	case o.Key() != key:
		x.problem(key, "the object is %s", o.Key())
	case string(o.GetUID()) != r.UID:
		x.problem(key, "the record's UID is %q, the object's %q", r.UID, o.GetUID())
	case o.GetResourceVersion() != r.RV:
		x.problem(key, "the record's resourceVersion is %q, the object's %q", r.RV, o.GetResourceVersion())
	}
	if object.NewerRV(r.RV, x.view.state.RV) {
		x.ahead++
	}
	if x.history.past(r.RV) {
		x.history.recent[key] = r.RV
	}
	for _, i := range x.indexes {
		if !i.known {
			continue
		}
		for _, value := range i.Values(o) {
			i.entries[string(format.IndexKey(value, key))] = false
		}
	}
}

func (x *collectionCheck) decode(key string, b []byte) (format.Record, *object.Object, error) {
	r, err := format.DecodeRecord([]byte(key), b)
	if err != nil {
		return r, nil, err
	}
	raw, err := x.db.codecs.Decode(r, dictLookup(x.view.tx), nil)
	if err != nil {
		return r, nil, err
	}
	o, err := object.Parse(raw)
	return r, o, err
}

func (x *collectionCheck) totals(state store.State) {
	if x.counted.Objects != state.Count {
		x.problem("", "it has %d objects, its state has %d", x.counted.Objects, state.Count)
	}
	// How many bytes a corrupt record adds to the total is unknown.
	if x.corrupt == 0 && x.counted.Bytes != state.Bytes {
		x.problem("", "its objects have %d bytes, its state has %d", x.counted.Bytes, state.Bytes)
	}
}

// versions compares the checkpoint with the records. Records past the checkpoint are normal
// after a crash between two batches: a key that changed twice is stored with its newest state,
// while the checkpoint waits for the changes in between. The watch sends all of them again.
func (x *collectionCheck) versions(state store.State) {
	note := func(format string, args ...any) {
		x.report.note(Problem{Collection: x.id, Reason: fmt.Sprintf(format, args...)})
	}
	switch {
	case !state.Synced:
		note("it has no complete list yet")
	case state.RV == "":
		x.problem("", "it is synced and has no resourceVersion")
	case !object.IsDecimalRV(state.RV):
		note("its resourceVersion %q is no decimal number", state.RV)
	case x.ahead > 0:
		note("%d objects are newer than the checkpoint %s, as between two batches of changes", x.ahead, state.RV)
	}
}

// index compares the entries of an index with the ones that its function returns for the objects,
// or, if the function is unknown or the record corrupt, with the keys of the objects only.
func (x *collectionCheck) index(i *indexCheck) {
	err := x.view.all(x.view.path(format.BucketIndex, []byte(i.Name)), func(k, _ []byte) {
		value, key, ok := strings.Cut(string(k), "\x00")
		corrupt, exists := x.keys[key]
		_, wanted := i.entries[string(k)]
		switch {
		case !ok:
			x.problem("", "index %s has a malformed entry %q", i.Name, k)
		case !exists:
			x.problem(key, "index %s has it under %q, and there is no such object", i.Name, value)
		case wanted:
			i.entries[string(k)] = true
		case i.known && !corrupt:
			x.problem(key, "index %s has it under %q, where it does not belong", i.Name, value)
		}
	})
	if err != nil {
		x.problem("", "index %s: %s", i.Name, reason(err))
		return
	}
	for _, entry := range slices.Sorted(maps.Keys(i.entries)) {
		if !i.entries[entry] {
			value, key, _ := strings.Cut(entry, "\x00")
			if i.building && key > i.after {
				continue
			}
			x.problem(key, "index %s does not have it under %q", i.Name, value)
		}
	}
}

// feedCheck is the check of a collection's history.
type feedCheck struct {
	head   history.Head
	recent map[string]string // resourceVersions that must have an entry, by object key

	entries, bytes int64
	deletions      map[string]bool // by feed key of a deletion, whether its tombstone was found
}

// past reports whether rv is past the horizon of a history that is recorded.
func (f *feedCheck) past(rv string) bool {
	return f.head.Recording() && object.NewerRV(rv, f.head.RV)
}

// feed compares the history with the objects. record has seen all of them before.
func (x *collectionCheck) feed() {
	f := x.history
	if err := x.view.all(x.view.path(format.BucketFeed), x.feedEntry); err != nil {
		x.problem("", "change feed: %s", reason(err))
		return
	}
	if err := x.view.all(x.view.path(format.BucketTombs), x.tomb); err != nil {
		x.problem("", "tombstones: %s", reason(err))
		return
	}
	for _, k := range slices.Sorted(maps.Keys(f.deletions)) {
		if rv, _ := history.RV([]byte(k)); !f.deletions[k] {
			x.problem("", "the deletion at %s has no tombstone", rv)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.recent)) {
		x.problem(key, "the change feed does not have it at %s", f.recent[key])
	}
	if x.corrupt == 0 && (f.entries != f.head.Entries || f.bytes != f.head.Bytes) {
		x.problem("", "the change feed has %d entries and %d bytes, its head has %d and %d", f.entries, f.bytes, f.head.Entries, f.head.Bytes)
	}
}

func (x *collectionCheck) feedEntry(k, b []byte) {
	f := x.history
	f.entries++
	f.bytes += format.FeedBytes(k, b, nil)
	rv, e, err := format.DecodeFeedEntry(k, b)
	if err != nil {
		x.problem("", "change feed: entry %x is corrupt", k)
		return
	}
	if e.Gap {
		return
	}
	if !slices.IsSortedFunc(append(e.Rows, store.AttributesRow{RV: rv}), func(a, b store.AttributesRow) int { return compareRV(a.RV, b.RV) }) {
		x.problem(e.Key, "the change feed has attributes at %s that are not in order", rv)
	}
	corrupt, exists := x.keys[e.Key]
	switch {
	case e.Deleted:
		f.deletions[string(k)] = false
	case !f.past(rv): // waits to be trimmed
	case corrupt:
		delete(f.recent, e.Key)
	case !exists || f.recent[e.Key] == "" || compareRV(f.recent[e.Key], rv) != 0:
		x.problem(e.Key, "the change feed has it at %s, where it is not", rv)
	default:
		delete(f.recent, e.Key)
	}
}

func (x *collectionCheck) tomb(k, b []byte) {
	f := x.history
	f.bytes += format.FeedBytes(k, b, nil)
	rv, _ := history.RV(k)
	if _, ok := f.deletions[string(k)]; !ok {
		x.problem("", "the tombstone at %s belongs to no deletion", rv)
		return
	}
	f.deletions[string(k)] = true
	_, e, err := format.DecodeFeedEntry(k, x.view.lookup(x.view.path(format.BucketFeed), k))
	if err != nil {
		return // feedEntry has reported it
	}
	r, err := format.DecodeRecord([]byte(e.Key), b)
	if err == nil {
		_, err = x.view.decode(e.Key, r)
	}
	if err != nil {
		x.problem(e.Key, "its tombstone at %s: %s", rv, reason(err))
	}
}

// compareRV compares two numbers.
func compareRV(a, b string) int {
	cmp, _ := object.CompareRV(a, b)
	return cmp
}
