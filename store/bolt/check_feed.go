package bolt

import (
	"maps"
	"slices"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/internal/history"
)

// feedCheck is the check of a collection's history.
type feedCheck struct {
	head   history.Head
	recent map[string]string // resourceVersions that must have an entry, by object key

	entries, bytes int64
	deletions      map[string]bool // by feed key of a deletion, whether its tombstone was found
}

// past reports whether rv is past the horizon of a history that is recorded.
func (f *feedCheck) past(rv string) bool {
	cmp, ok := object.CompareRV(rv, f.head.RV)
	return f.head.Recording() && ok && cmp > 0
}

// feed compares the history with the objects. record has seen all of them before.
func (x *collectionCheck) feed() {
	f := x.history
	for _, err := range scan(x.view, x.view.path(format.BucketFeed), "", "", x.feedEntry) {
		if err != nil {
			x.problem("", "change feed: %s", reason(err))
			return
		}
	}
	for _, err := range scan(x.view, x.view.path(format.BucketTombs), "", "", x.tomb) {
		if err != nil {
			x.problem("", "tombstones: %s", reason(err))
			return
		}
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

func (x *collectionCheck) feedEntry(k, b []byte) (struct{}, error) {
	f := x.history
	f.entries++
	f.bytes += format.FeedBytes(k, b, nil)
	rv, e, err := format.DecodeFeedEntry(k, b)
	if err != nil {
		x.problem("", "change feed: entry %x is corrupt", k)
		return struct{}{}, nil
	}
	if e.Gap {
		return struct{}{}, nil
	}
	if !slices.IsSortedFunc(append(e.Rows, store.AttributesRow{RV: rv}), compareRows) {
		x.problem(e.Key, "the change feed has attributes at %s that are not in order", rv)
	}
	corrupt, exists := x.keys[e.Key]
	switch {
	case e.Deleted:
		f.deletions[string(k)] = false
	case !f.past(rv): // waits to be trimmed
	case corrupt:
		delete(f.recent, e.Key)
	case !exists || !sameNumber(f.recent[e.Key], rv):
		x.problem(e.Key, "the change feed has it at %s, where it is not", rv)
	default:
		delete(f.recent, e.Key)
	}
	return struct{}{}, nil
}

func (x *collectionCheck) tomb(k, b []byte) (struct{}, error) {
	f := x.history
	f.bytes += format.FeedBytes(k, b, nil)
	rv, _ := history.RV(k)
	if _, ok := f.deletions[string(k)]; !ok {
		x.problem("", "the tombstone at %s belongs to no deletion", rv)
		return struct{}{}, nil
	}
	f.deletions[string(k)] = true
	_, e, err := format.DecodeFeedEntry(k, x.view.lookup(x.view.path(format.BucketFeed), k))
	if err != nil {
		return struct{}{}, nil // feedEntry has reported it
	}
	r, err := format.DecodeRecord([]byte(e.Key), b)
	if err == nil {
		_, err = x.view.decode(e.Key, r)
	}
	if err != nil {
		x.problem(e.Key, "its tombstone at %s: %s", rv, reason(err))
	}
	return struct{}{}, nil
}

func compareRows(a, b store.AttributesRow) int {
	cmp, _ := object.CompareRV(a.RV, b.RV)
	return cmp
}

func sameNumber(a, b string) bool {
	cmp, ok := object.CompareRV(a, b)
	return ok && cmp == 0
}
