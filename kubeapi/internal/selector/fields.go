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
	f := Fields{kind: kindOf(info, d)}
	for _, x := range f.kind.fields {
		if x.path != "" {
			f.tree.add(x.name, strings.Split(x.path, "."))
		}
	}
	if drop, ok := strings.CutPrefix(info.Transform, "drop:"); ok { // see object.Prune.ID
		f.dropped = strings.Split(drop, ",")
	}
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
	i := slices.IndexFunc(f.kind.fields, func(x field) bool { return x.name == name })
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

// Spec identifies what Of returns for an object: equal specs return equal attributes.
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
	if len(f.kind.fields) == 0 {
		return a, nil
	}
	raw := o.Raw()
	if object.IsProtobuf(raw) {
		return a, fmt.Errorf("%w: %s is stored as protobuf", ErrNotStored, o.Key())
	}
	a.Fields = make(map[string]string, len(f.kind.fields))
	// Not a copy of the bytes, which never change: it would be most of the cost.
	f.tree.read(gjson.Parse(unsafe.String(unsafe.SliceData(raw), len(raw))), a.Fields)
	for _, x := range f.kind.fields {
		if a.Fields[x.name] != "" {
			continue
		}
		if x.or != "" {
			a.Fields[x.name] = a.Fields[x.or]
		} else {
			a.Fields[x.name] = x.absent
		}
	}
	return a, nil
}

// node is a part of an object's JSON that has fields. All fields are read in one pass: a search from
// the beginning for each would pass a pod's containers eight times.
type node struct {
	field   string // the name of the field whose value this is; empty for none
	members map[string]*node
}

func (n *node) add(field string, path []string) {
	if len(path) == 0 {
		n.field = field
		return
	}
	member := n.members[path[0]]
	if member == nil {
		member = &node{}
		if n.members == nil {
			n.members = make(map[string]*node)
		}
		n.members[path[0]] = member
	}
	member.add(field, path[1:])
}

func (n *node) read(value gjson.Result, into map[string]string) {
	missing := len(n.members)
	if missing == 0 {
		return
	}
	value.ForEach(func(key, value gjson.Result) bool {
		member := n.members[key.Str]
		if member == nil {
			return true
		}
		if member.field != "" {
			into[member.field] = strings.Clone(value.String())
		}
		member.read(value, into)
		missing--
		return missing > 0
	})
}
