package history

import (
	"slices"

	"github.com/snapcache/snapcache/store"
)

// maxRows is the maximum number of rows of an entry.
const maxRows = 32

// Track begins to record the attributes of an index, nil for none, unless the history records them
// already or they are not wanted. Values before the highest resourceVersion in the table are unknown
// then.
func (h *Head) Track(attributes *store.Index, highest func() (string, error)) error {
	if !h.Recording() {
		return nil
	}
	spec := wanted(attributes, h.Attributes)
	if h.Attributes == spec {
		return nil
	}
	h.Attributes, h.AttributesSince = spec, ""
	if spec == "" {
		return nil
	}
	rv, err := highest()
	h.AttributesSince = higher(h.RV, rv)
	return err
}

// wanted returns the spec of an index, nil for none, if a history that records the attributes of
// another spec is to record the index's.
func wanted(attributes *store.Index, recorded string) string {
	if attributes == nil || attributes.Wanted != nil && !attributes.Wanted(recorded == attributes.Spec) {
		return ""
	}
	return attributes.Spec
}

// Of returns the attributes of an entry's object.
func (h Head) Of(e Entry) store.Attributes {
	return store.Attributes{Spec: h.Attributes, Since: higher(h.AttributesSince, e.RowsSince), Rows: e.Rows}
}

// missing returns a substitute for the missing entry of an object at rv: the zero Entry unless rv is
// past the horizon. Then the entry was corrupt, and its rows are lost.
func (h Head) missing(rv string) Entry {
	if h.Attributes == "" || !after(rv, h.RV) {
		return Entry{}
	}
	return Entry{RowsSince: rv}
}

// rows returns the rows of a changed object with this entry: its old rows, and one for this change if
// it changes the attributes.
func (h Head) rows(c Change, was Entry) (rows []store.AttributesRow, since string) {
	rows, since = was.Rows, was.RowsSince
	switch {
	case h.Attributes == "":
		return nil, ""
	case c.Old.Unreadable:
		return nil, c.New.RV
	}
	if !slices.Equal(c.Old.Attributes, c.New.Attributes) {
		rows = append(slices.Clip(rows), store.AttributesRow{RV: c.New.RV, Values: c.Old.Attributes})
	}
	floor := higher(h.RV, h.AttributesSince)
	for len(rows) > 0 && (!after(rows[0].RV, floor) || len(rows) > maxRows) {
		since, rows = Higher(since, rows[0].RV), rows[1:]
	}
	if !after(since, floor) {
		since = ""
	}
	return rows, since
}
