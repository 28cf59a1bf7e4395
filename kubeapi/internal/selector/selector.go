package selector

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector is a label selector with a field selector. The zero value selects everything. It is
// immutable.
type Selector struct {
	labels labels.Selector // nil for everything
	fields fields.Selector // nil for everything
	shared *Selector       // in a Pool, which keeps it; nil for none
}

// Parse reads the selectors of a request. The text of an error is the message of a kube-apiserver's
// Status with code 400, unless the error wraps [ErrNotStored].
func (f Fields) Parse(labelSelector, fieldSelector string) (Selector, error) {
	byLabel, err := labels.Parse(labelSelector)
	if err != nil {
		return Selector{}, err
	}
	byField, err := fields.ParseSelector(fieldSelector)
	if err == nil {
		// Not ParseAndTransformSelector: as in a kube-apiserver, "=" is dropped before its field is
		// found to be unknown.
		byField, err = byField.Transform(f.resolve)
	}
	if err != nil {
		return Selector{}, err
	}
	s := Selector{}
	if !byLabel.Empty() {
		s.labels = byLabel
	}
	if !byField.Empty() {
		s.fields = byField
	}
	return s, nil
}

// Empty reports whether the selector selects everything.
func (s Selector) Empty() bool { return s.labels == nil && s.fields == nil }

// ByKey reports whether the selector looks at no more than the name and the namespace.
func (s Selector) ByKey() bool {
	return s.labels == nil && (s.fields == nil || !slices.ContainsFunc(s.fields.Requirements(), func(r fields.Requirement) bool {
		return r.Field != "metadata.name" && r.Field != "metadata.namespace"
	}))
}

// Matches reports whether the object at key, with these attributes, is selected.
func (s Selector) Matches(key string, a Attributes) bool {
	if s.labels != nil && !s.labels.Matches(labels.Set(a.Labels)) {
		return false
	}
	return s.fields == nil || s.fields.Matches(values{key, a.Fields})
}

// Name returns the name, and Namespace the namespace, that every selected object has.
func (s Selector) Name() (name string, ok bool) { return s.exact("metadata.name") }

// Namespace returns the namespace that every selected object has.
func (s Selector) Namespace() (namespace string, ok bool) { return s.exact("metadata.namespace") }

func (s Selector) exact(field string) (string, bool) {
	if s.fields == nil {
		return "", false
	}
	return s.fields.RequiresExactMatch(field)
}

// values are an object's values of all fields, [fields.Fields].
type values struct {
	key    string
	fields map[string]string
}

func (v values) Has(field string) bool { return v.Get(field) != "" }

func (v values) Get(field string) string {
	namespace, name, namespaced := strings.Cut(v.key, "/")
	if !namespaced {
		namespace, name = "", v.key
	}
	switch field {
	case "metadata.name":
		return name
	case "metadata.namespace":
		return namespace
	}
	return v.fields[field]
}
