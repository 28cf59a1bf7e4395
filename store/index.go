package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/object"
)

// LabelIndex files objects under the value of a label.
func LabelIndex(name, label string) Index {
	return Index{Name: name, Spec: "label:" + label, Func: func(o *object.Object) []string {
		if v, ok := o.Labels()[label]; ok {
			return []string{v}
		}
		return nil
	}}
}

// FieldIndex files objects under the value of a field path (see [object.Object.Field]).
func FieldIndex(name, path string) Index {
	return Index{Name: name, Spec: "field:" + path, Func: func(o *object.Object) []string {
		if v, ok := o.Field(path); ok {
			return []string{v}
		}
		return nil
	}}
}

// IndexFromSpec returns the index that a Spec describes, for callers that do not have the
// configuration. ok is false if the Spec is not of [LabelIndex] or [FieldIndex].
func IndexFromSpec(name, spec string) (x Index, ok bool) {
	switch kind, of, _ := strings.Cut(spec, ":"); {
	case of == "":
		return Index{}, false
	case kind == "label":
		return LabelIndex(name, of), true
	case kind == "field":
		return FieldIndex(name, of), true
	}
	return Index{}, false
}

// MaxIndexValueBytes is the maximum length of an index value, in bytes. Together with the longest
// key of an object it is less than bbolt's longest key.
const MaxIndexValueBytes = 16 << 10

// Values returns the index's values of an object: sorted, unique and free of zero bytes, which
// separate value and key on disk. Values longer than MaxIndexValueBytes are left out.
func (x Index) Values(o *object.Object) []string {
	values := x.Func(o)
	switch {
	case len(values) == 0:
		return nil
	case len(values) == 1 && strings.IndexByte(values[0], 0) < 0 && len(values[0]) <= MaxIndexValueBytes:
		return values // the usual case, without an allocation
	}
	values = slices.Clone(values)
	for i, v := range values {
		if strings.IndexByte(v, 0) >= 0 {
			values[i] = strings.ReplaceAll(v, "\x00", "\uFFFD")
		}
	}
	values = slices.DeleteFunc(values, func(v string) bool { return len(v) > MaxIndexValueBytes })
	slices.Sort(values)
	return slices.Compact(values)
}

// SortIndexes returns indexes ordered by name, and apart from them the one of the history, nil if
// there is none. The error means that they can't be the indexes of one collection.
func SortIndexes(indexes []Index) (sorted []Index, history *Index, err error) {
	indexes = slices.Clone(indexes)
	slices.SortFunc(indexes, func(a, b Index) int { return strings.Compare(a.Name, b.Name) })
	for i, x := range indexes {
		switch {
		case x.Name == "" || x.Func == nil:
			return nil, nil, fmt.Errorf("index %q has no name or no function", x.Name)
		case x.Name == NamespaceIndex:
			return nil, nil, fmt.Errorf("index %q: every collection has it already", x.Name)
		case i > 0 && x.Name == indexes[i-1].Name:
			return nil, nil, fmt.Errorf("index %q is given twice", x.Name)
		case x.History && history != nil:
			return nil, nil, fmt.Errorf("index %q: %q is the one of the history", x.Name, history.Name)
		case x.History && x.Spec == "":
			return nil, nil, fmt.Errorf("index %q of the history has no spec", x.Name)
		case x.History:
			history = &x
		}
	}
	return slices.DeleteFunc(indexes, func(x Index) bool { return x.History }), history, nil
}

// KeyNamespace returns the namespace part of a key, "" if it has none.
func KeyNamespace(key string) string {
	return key[:max(0, strings.IndexByte(key, '/'))]
}
