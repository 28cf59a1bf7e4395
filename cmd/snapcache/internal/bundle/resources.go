package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/upstream"
)

// resources are those that a bundle has objects of.
type resources struct {
	served []*metav1.APIResourceList
	db     *bolt.DB
	found  map[schema.GroupKind]*resource // in one version
	count  int                            // of the objects that were added
}

// resource is what a bundle has of a resource.
type resource struct {
	info       store.Info
	collection store.Collection
	list       store.Replacement
	rv         string // the highest of the objects
}

// fatalError ends the reading of a bundle. Other errors are those of one file.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

func newResources(served []*metav1.APIResourceList, db *bolt.DB) *resources {
	return &resources{served: served, db: db, found: map[schema.GroupKind]*resource{}}
}

// add adds the objects of a file: an array, a list or one object. What is none of these, such as the errors
// of a collector, is left out. If a part of the file can't be read, the objects before it are added.
func (rs *resources) add(ctx context.Context, name string, body []byte) error {
	if path.Ext(name) == ".json" {
		return rs.addJSON(ctx, name, body)
	}
	for _, part := range yamlParts(body) {
		if len(part) > maxYAMLBytes {
			return fmt.Errorf("an object of %d bytes of YAML", len(part))
		}
		converted, err := yaml.YAMLToJSON(part)
		if err == nil {
			err = rs.addJSON(ctx, name, converted)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// yamlParts splits YAML before each item of a sequence that is not indented, as a list of objects is: what
// is decoded at once is one object.
func yamlParts(body []byte) (parts [][]byte) {
	next := []byte("\n- ")
	for bytes.HasPrefix(body, next[1:]) {
		i := bytes.Index(body, next)
		if i < 0 {
			break
		}
		parts, body = append(parts, body[:i+1]), body[i+1:]
	}
	return append(parts, body)
}

// addJSON adds the objects of JSON.
func (rs *resources) addJSON(ctx context.Context, name string, body []byte) error {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '[' && body[0] != '{' {
		return nil
	}
	of := schema.GroupVersionKind{}
	isList := body[0] == '['
	if !isList {
		of, isList = typeOf(body)
	}
	if of.Kind == "" {
		of = rs.namedLike(name)
	}
	if !isList {
		if !json.Valid(body) {
			return object.ErrInvalid
		}
		return rs.addObject(body, of)
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	items, err := intoItems(dec)
	if err != nil {
		return err
	}
	if of.Kind != "" { // there may be none
		if _, err := rs.resource(of, strings.Contains(strings.TrimPrefix(name, folder), "/")); err != nil {
			return err
		}
	}
	for items && dec.PeekKind() != ']' {
		raw, err := dec.ReadValue()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if raw.Kind() != '{' {
			return nil
		}
		if err := rs.addObject(raw, of); err != nil {
			return err
		}
	}
	for err == nil { // which verifies the rest
		_, err = dec.ReadToken()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// typeOf returns the type of an object or, if it is a list, of its items. The body may be cut off.
func typeOf(body []byte) (of schema.GroupVersionKind, isList bool) {
	fields := gjson.GetManyBytes(body, "apiVersion", "kind")
	of = schema.FromAPIVersionAndKind(fields[0].String(), fields[1].String())
	of.Kind, isList = strings.CutSuffix(of.Kind, "List")
	return of, isList
}

// intoItems reads up to the first item of an array or a list. ok is false if there are no items.
func intoItems(dec *jsontext.Decoder) (ok bool, err error) {
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() == '[' {
		return true, err
	}
	for {
		tok, err := dec.ReadToken()
		switch {
		case err != nil:
			return false, err
		case tok.Kind() == '}':
			return false, nil
		case tok.String() != "items":
			err = dec.SkipValue()
		case dec.PeekKind() == '[':
			_, err = dec.ReadToken()
			return true, err
		default:
			return false, dec.SkipValue()
		}
		if err != nil {
			return false, err
		}
	}
}

// namedLike returns the kind of the resource that a file is named after: some versions of Troubleshoot
// leave out what the objects are. It is empty if there is none.
func (rs *resources) namedLike(name string) schema.GroupVersionKind {
	name, _, _ = strings.Cut(strings.TrimPrefix(name, folder), "/")
	name = strings.ReplaceAll(strings.TrimSuffix(name, path.Ext(name)), "-", "")
	for _, l := range rs.served {
		for _, r := range l.APIResources {
			if r.Name == name || r.SingularName == name {
				return schema.FromAPIVersionAndKind(l.GroupVersion, r.Kind)
			}
		}
	}
	return schema.GroupVersionKind{}
}

// addObject adds an object, of a kind unless it has its own.
func (rs *resources) addObject(raw []byte, of schema.GroupVersionKind) error {
	fields := gjson.GetManyBytes(raw, "apiVersion", "kind", "metadata.name", "metadata.namespace")
	if own := schema.FromAPIVersionAndKind(fields[0].Str, fields[1].Str); own.Kind != "" && own.Version != "" {
		of = own
	}
	if of.Kind == "" || fields[2].Str == "" {
		return nil // no object
	}
	value := jsontext.Value(bytes.Clone(object.WithType(raw, of.GroupVersion().String(), of.Kind)))
	if err := value.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return err
	}
	o, err := object.FromValid(value)
	if err != nil {
		return err
	}
	r, err := rs.resource(of, fields[3].Str != "")
	if err != nil || r.info.Version != of.Version {
		return err
	}
	if rs.count++; rs.count > maxObjects {
		return &fatalError{fmt.Errorf("it has more than %d objects", maxObjects)}
	}
	if order, ok := object.CompareRV(o.GetResourceVersion(), r.rv); ok && order > 0 {
		r.rv = o.GetResourceVersion()
	}
	if err := r.list.Apply([]store.Change{{Key: o.Key(), Object: o}}); err != nil {
		return &fatalError{err}
	}
	return nil
}

// resource returns the resource of a kind, which has no objects at first. What it is called is what the
// server said, or a guess if the bundle does not have that.
func (rs *resources) resource(of schema.GroupVersionKind, namespaced bool) (*resource, error) {
	if r := rs.found[of.GroupKind()]; r != nil {
		return r, nil
	}
	if len(rs.found) == maxResources {
		return nil, fmt.Errorf("the bundle has more than %d resources", maxResources)
	}
	guess, _ := meta.UnsafeGuessKindToResource(of)
	r := &resource{rv: "1"}
	r.info = store.Info{Group: of.Group, Version: of.Version, Resource: guess.Resource, Kind: of.Kind, Namespaced: namespaced}
	for _, x := range rs.version(of.GroupVersion()) {
		if x.Kind == of.Kind && !strings.Contains(x.Name, "/") {
			r.info.Resource, r.info.Namespaced = x.Name, x.Namespaced
		}
	}
	r.info.ID = r.info.GVR().GroupResource().String()
	var err error
	if r.collection, err = rs.db.Open(r.info); err == nil {
		r.list, err = r.collection.Replace()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.info.ID, err)
	}
	rs.found[of.GroupKind()] = r
	return r, nil
}

// version returns what the server served of a version.
func (rs *resources) version(v schema.GroupVersion) []metav1.APIResource {
	for _, l := range rs.served {
		if l.GroupVersion == v.String() {
			return l.APIResources
		}
	}
	return nil
}

// commit makes the objects visible. The highest of their resourceVersions is the collection's.
func (rs *resources) commit(at time.Time, warn func(format string, args ...any)) error {
	for _, r := range rs.found {
		if err := r.list.Commit(store.Checkpoint{RV: r.rv, LastList: at}); err != nil {
			return err
		}
	}
	for _, r := range rs.found {
		definition, err := rs.definition(r)
		if err != nil {
			return err
		}
		d, err := upstream.DescribeOffline(rs.version(r.info.GVR().GroupVersion()), definition, r.info.GVR())
		if err != nil {
			warn("%v: columns and selectable fields are missing", err)
		}
		if err := r.collection.Describe(d); err != nil {
			return fmt.Errorf("%s: %w", r.info.ID, err)
		}
	}
	return nil
}

// definition returns the definition of a custom resource, nil if the bundle has none.
func (rs *resources) definition(r *resource) ([]byte, error) {
	all := rs.found[schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}]
	if all == nil {
		return nil, nil
	}
	v, err := rs.db.View(all.info.ID)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	o, err := v.Get(r.info.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return o.JSON(), nil
}
