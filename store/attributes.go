package store

import "github.com/snapcache/snapcache/object"

// Attributes are what the history has of the values that an object had in the index with
// [Index.History] set.
type Attributes struct {
	Spec  string // of that index; empty if the history has none
	Since string // the resourceVersion from which on the values are known

	// Rows has each change of the values since then, and perhaps some before, in ascending order.
	Rows []AttributesRow
}

// AttributesRow has the values that an object had before the change at RV, which are sorted.
type AttributesRow struct {
	RV     string
	Values []string
}

// AttributesAt returns the values in the history's index that the event's object had at the
// resourceVersion since, for a reader that needs the event and of whose state the object, by its
// UID, is a part. If changed is false, they are those of Object. known is false if the history does
// not have them: it did not record values of this spec at since, or too many changes, or a corrupt
// one, came in between.
func (e Event) AttributesAt(spec, since string) (values []string, changed, known bool) {
	a := &e.Attributes
	if cmp, ok := object.CompareRV(since, a.Since); !ok || cmp < 0 || a.Spec != spec || spec == "" {
		return nil, false, false
	}
	for _, row := range a.Rows {
		if cmp, ok := object.CompareRV(row.RV, since); ok && cmp > 0 {
			return row.Values, true, true
		}
	}
	return nil, false, true
}
