package selector

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Within reports whether everything that s selects is selected by outer too. It returns false if it
// can't tell. Both are of the same resource.
func (s Selector) Within(outer Selector) bool {
	if outer.fields != nil {
		var have fields.Requirements
		if s.fields != nil {
			have = s.fields.Requirements()
		}
		for _, want := range outer.fields.Requirements() {
			if !slices.ContainsFunc(have, func(r fields.Requirement) bool { return fieldImplies(r, want) }) {
				return false
			}
		}
	}
	if outer.labels != nil {
		var have labels.Requirements
		if s.labels != nil {
			have, _ = s.labels.Requirements()
		}
		wanted, _ := outer.labels.Requirements()
		for _, want := range wanted {
			if !constraintOf(have, want.Key()).implies(want) {
				return false
			}
		}
	}
	return true
}

// fieldImplies reports whether each object that meets have meets want.
func fieldImplies(have, want fields.Requirement) bool {
	if have.Field != want.Field {
		return false
	}
	if have.Operator == want.Operator {
		return have.Value == want.Value
	}
	return have.Operator == selection.Equals && have.Value != want.Value
}

// constraint is the requirements for one label, all of which hold.
type constraint struct {
	label string
	all   labels.Requirements
}

func constraintOf(all labels.Requirements, label string) constraint {
	c := constraint{label: label}
	for _, r := range all {
		if r.Key() == label {
			c.all = append(c.all, r)
		}
	}
	return c
}

// allows reports whether an object with these labels meets the constraint, which looks only at its own
// label.
func (c constraint) allows(set labels.Set) bool {
	return !slices.ContainsFunc(c.all, func(r labels.Requirement) bool { return !r.Matches(set) })
}

// implies reports whether each object that meets the constraint meets want, which is about the same
// label.
func (c constraint) implies(want labels.Requirement) bool {
	if possible, ok := c.possible(); ok {
		return !slices.ContainsFunc(possible, func(set labels.Set) bool { return c.allows(set) && !want.Matches(set) })
	}
	// The label may have infinitely many values.
	switch want.Operator() {
	case selection.Exists:
		return !c.allows(nil)
	case selection.NotIn, selection.NotEquals:
		return !slices.ContainsFunc(want.ValuesUnsorted(), func(v string) bool { return c.allows(labels.Set{c.label: v}) })
	case selection.GreaterThan, selection.LessThan:
		return slices.ContainsFunc(c.all, func(have labels.Requirement) bool { return boundImplies(have, want) })
	}
	return false
}

// possible returns sets of labels, one for each value that an object's label may have if it meets the
// constraint, and maybe more. ok is false if no requirement limits the label to given values.
func (c constraint) possible() (sets []labels.Set, ok bool) {
	for _, r := range c.all {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			for _, v := range r.ValuesUnsorted() {
				sets = append(sets, labels.Set{c.label: v})
			}
			return sets, true
		case selection.DoesNotExist:
			return []labels.Set{nil}, true
		}
	}
	return nil, false
}

// boundImplies reports whether each integer that meets the bound have meets the bound want.
func boundImplies(have, want labels.Requirement) bool {
	if have.Operator() != want.Operator() {
		return false
	}
	h, errHave := strconv.ParseInt(have.ValuesUnsorted()[0], 10, 64)
	w, errWant := strconv.ParseInt(want.ValuesUnsorted()[0], 10, 64)
	if errHave != nil || errWant != nil {
		return false
	}
	if want.Operator() == selection.GreaterThan {
		return h >= w
	}
	return h <= w
}
