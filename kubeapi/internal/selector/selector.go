package selector

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Fields are the fields of a resource that a selector can name.
type Fields struct {
	info  store.Info
	extra []string
}

// FieldsOf returns the selectable fields of a collection's resource.
func FieldsOf(info store.Info, d store.Description) Fields { return Fields{info: info} }

// Attributes are the values of an object that selectors look at. The key is not among them.
type Attributes struct {
	Labels map[string]string
	Fields map[string]string // without metadata.name and metadata.namespace
}

// Of returns the attributes of an object.
func (f Fields) Of(o *object.Object) (Attributes, error) {
	return Attributes{Labels: o.Labels()}, nil
}

// Values returns the attributes as the values of a [store.Index], in order. [FromValues] reads them.
func (a Attributes) Values() []string { return nil }

// FromValues reads the result of [Attributes.Values].
func FromValues(values []string) Attributes { return Attributes{} }

// Selector is a label selector with a field selector. The zero value selects everything.
type Selector struct {
	labels labels.Selector
	fields fields.Selector
}

// Parse reads the selectors of a request. The text of an error is the message of a kube-apiserver's
// Status with code 400.
func (f Fields) Parse(labelSelector, fieldSelector string) (Selector, error) {
	return Selector{}, nil
}

// Empty reports whether the selector selects everything.
func (s Selector) Empty() bool { return true }

// Matches reports whether the object at key, with these attributes, is selected.
func (s Selector) Matches(key string, a Attributes) bool { return true }

// Name returns the name, and Namespace the namespace, that every selected object has.
func (s Selector) Name() (name string, ok bool) { return "", false }

// Namespace returns the namespace that every selected object has.
func (s Selector) Namespace() (namespace string, ok bool) { return "", false }

// Within reports whether everything that s selects is selected by outer too. It returns false if it
// can't tell.
func (s Selector) Within(outer Selector) bool { return outer.Empty() }
