package selector

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// ErrNotStored means that a kube-apiserver could select by a field, but the stored objects don't
// have it: it is dropped before storing, or they are protobuf.
var ErrNotStored = errors.New("the field is not in the cache")

// Fields are the fields of a resource that a selector can name. They are immutable.
type Fields struct {
	kind    kind
	tree    node
	dropped []string // paths
}

// FieldsOf returns the selectable fields of a collection's resource.
func FieldsOf(info store.Info, d store.Description) Fields {
	f := Fields{kind: kindOf(info, d), tree: node{field: -1}}
	for i, x := range f.kind.fields {
		if x.path != "" {
			f.tree.add(i, strings.Split(x.path, "."))
		}
	}
	f.dropped = object.ParsePrune(info.Transform).Paths()
	return f
}

// resolve returns the field and the value that a requirement of a request means, or the
// kube-apiserver's error. It is a [fields.TransformFunc].
func (f Fields) resolve(name, value string) (string, string, error) {
	if name == "metadata.name" || name == "metadata.namespace" && !f.kind.noNamespace {
		return name, value, nil
	}
	if of := f.kind.aliases[name]; of != "" {
		name = of
	}
	i := f.kind.index(name)
	if i < 0 {
		return "", "", fmt.Errorf(f.kind.unknown, name)
	}
	if x := f.kind.fields[i]; f.isDropped(x.path) {
		return "", "", fmt.Errorf("%w: %s", ErrNotStored, name)
	} else if x.or != "" {
		if _, _, err := f.resolve(x.or, value); err != nil {
			return "", "", err
		}
	}
	return name, value, nil
}

func (f Fields) isDropped(path string) bool {
	return slices.ContainsFunc(f.dropped, func(d string) bool { return path == d || strings.HasPrefix(path, d+".") })
}

// Spec identifies the attributes that Of returns: equal specs return equal ones for an object.
func (f Fields) Spec() string {
	names := []string{"labels"}
	for _, x := range f.kind.fields {
		names = append(names, x.name)
	}
	return strings.Join(names, ",")
}

// Of returns the attributes of an object. For one stored as protobuf they lack the fields, and the
// error wraps [ErrNotStored] if the resource has any.
func (f Fields) Of(o *object.Object) (Attributes, error) {
	a := Attributes{Labels: o.Labels()}
	found, err := f.read(o)
	if err != nil || len(found) == 0 {
		return a, err
	}
	a.Fields = make(map[string]string, len(found))
	for _, x := range found {
		a.Fields[x.name] = strings.Clone(x.value)
	}
	return a, nil
}

// Values returns the [Attributes.Values] of an object, or the error of Of. It makes no maps: it is
// called for each change.
func (f Fields) Values(o *object.Object) ([]string, error) {
	found, err := f.read(o)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, byName)
	return encode(pairs(o.Labels()), found), nil
}

// read returns the fields of an object. Their values share its bytes.
func (f Fields) read(o *object.Object) ([]pair, error) {
	if len(f.kind.fields) == 0 {
		return nil, nil
	}
	raw := o.Raw()
	if object.IsProtobuf(raw) {
		return nil, fmt.Errorf("%w: %s is stored as protobuf", ErrNotStored, o.Key())
	}
	found := make([]pair, len(f.kind.fields))
	for i, x := range f.kind.fields {
		found[i].name = x.name
	}
	// Not a copy of the bytes, which never change: it would be most of the cost.
	f.tree.read(gjson.Parse(unsafe.String(unsafe.SliceData(raw), len(raw))), found)
	for i, x := range f.kind.fields {
		if found[i].value != "" {
			continue
		}
		found[i].value = x.absent
		if x.or != "" {
			found[i].value = found[f.kind.index(x.or)].value
		}
	}
	return found, nil
}

// node is a part of an object's JSON that has fields. All fields are read in one pass: a search from
// the beginning for each would pass a pod's containers eight times.
type node struct {
	field   int // the place of the field whose value this is; -1 for none
	members map[string]*node
}

func (n *node) add(field int, path []string) {
	if len(path) == 0 {
		n.field = field
		return
	}
	member := n.members[path[0]]
	if member == nil {
		member = &node{field: -1}
		if n.members == nil {
			n.members = make(map[string]*node)
		}
		n.members[path[0]] = member
	}
	member.add(field, path[1:])
}

func (n *node) read(value gjson.Result, into []pair) {
	missing := len(n.members)
	if missing == 0 {
		return
	}
	value.ForEach(func(key, value gjson.Result) bool {
		member := n.members[key.Str]
		if member == nil {
			return true
		}
		if member.field >= 0 {
			into[member.field].value = value.String()
		}
		member.read(value, into)
		missing--
		return missing > 0
	})
}
