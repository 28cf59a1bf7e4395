package bundle

import (
	"bufio"
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

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/upstream"
)

// resources are the resources of a bundle's objects.
type resources struct {
	served []*metav1.APIResourceList
	db     *bolt.DB
	at     time.Time                      // of the bundle
	found  map[schema.GroupKind]*resource // in one version
	count  int                            // of the objects that were added
	names  int                            // bytes of their keys
	late   int                            // objects of a resource whose list was complete

	in     *bufio.Reader // of the file that is read
	listed *resource     // whose objects are added as a list
}

// resource holds the objects of one resource.
type resource struct {
	info       store.Info
	collection store.Collection
	list       store.Replacement // nil once it is complete; later objects are single changes
	rv         string            // the highest of the objects
}

// fatalError ends the reading of a bundle. Any other error ends the reading of one file.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// errLarge is the error of a file, from the object on that is too large.
var errLarge = fmt.Errorf("an object of more than %d MiB", maxObjectBytes>>20)

// errLate is the error of a file, from the object on that is one too many.
var errLate = fmt.Errorf("more than %d objects that are not beside others of their kind", maxLate)

func newResources(served []*metav1.APIResourceList, db *bolt.DB, at time.Time) *resources {
	return &resources{
		served: served, db: db, at: at, found: map[schema.GroupKind]*resource{},
		in: bufio.NewReaderSize(nil, maxObjectBytes),
	}
}

// add adds the objects of a file: an array, a list or one object. Anything else, such as the errors
// of a collector, is left out. If a part of the file can't be read, the objects before it are added.
func (rs *resources) add(ctx context.Context, name string, body io.Reader) error {
	rs.in.Reset(body)
	if path.Ext(name) != ".json" {
		for part, err := range yamlParts(rs.in) {
			if err == nil {
				part, err = yamlToJSON(part)
			}
			if err == nil {
				err = rs.addJSON(ctx, name, part, bytes.NewReader(part))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := skipBlanks(rs.in); err != nil {
		return err
	}
	head, readErr := rs.in.Peek(maxObjectBytes)
	err := rs.addJSON(ctx, name, head, rs.in)
	if readErr != nil && !errors.Is(readErr, io.EOF) {
		return readErr
	}
	return err
}

// skipBlanks reads up to the first byte that is none.
func skipBlanks(in *bufio.Reader) error {
	for {
		c, err := in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			return in.UnreadByte()
		}
	}
}

// allowance is a reader with an error after left bytes.
type allowance struct {
	r    io.Reader
	left int
}

func (a *allowance) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, errLarge
	}
	n, err := a.r.Read(p[:min(len(p), a.left)])
	a.left -= n
	return n, err
}

// addJSON adds the objects of JSON, of which head is the beginning: all, unless it has maxObjectBytes.
func (rs *resources) addJSON(ctx context.Context, name string, head []byte, body io.Reader) error {
	head = bytes.TrimSpace(head)
	if len(head) == 0 || head[0] != '[' && head[0] != '{' {
		return nil
	}
	of := schema.GroupVersionKind{}
	isList := head[0] == '['
	if !isList {
		of, isList = typeOf(head)
	}
	if of.Kind == "" {
		of = rs.namedLike(name)
	}
	if !isList {
		switch {
		case len(head) == maxObjectBytes:
			return errLarge
		case !json.Valid(head):
			return object.ErrInvalid
		}
		return rs.addObject(head, of)
	}
	from := &allowance{r: body, left: maxObjectBytes}
	dec := jsontext.NewDecoder(from, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
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
		from.left = maxObjectBytes
	}
	for err == nil { // which verifies the rest
		_, err = dec.ReadToken()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// typeOf returns the type of an object or, if it is a list, of its items. The body may be cut off: then
// the type may come after the items.
func typeOf(body []byte) (of schema.GroupVersionKind, isList bool) {
	fields := gjson.GetManyBytes(body, "apiVersion", "kind", "items")
	of = schema.FromAPIVersionAndKind(fields[0].String(), fields[1].String())
	of.Kind, isList = strings.CutSuffix(of.Kind, "List")
	return of, isList || of.Kind == "" && fields[2].IsArray()
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
// leave out the type of objects. It is empty if there is none.
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
	key := o.Key()
	if rs.names += len(key); rs.names > maxKeyBytes {
		return &fatalError{fmt.Errorf("the names of its objects have more than %d MiB", maxKeyBytes>>20)}
	}
	if object.NewerRV(o.GetResourceVersion(), r.rv) {
		r.rv = o.GetResourceVersion()
	}
	err = rs.put(r, store.Change{Key: key, Object: o})
	switch {
	case errors.Is(err, errLate):
		rs.count--
		return err
	case err != nil:
		return &fatalError{err}
	}
	return nil
}

// put stores an object. The list of a resource is complete when an object of another one comes, so that only one
// list is in memory.
func (rs *resources) put(r *resource, change store.Change) error {
	if r != rs.listed {
		if err := rs.complete(); err != nil {
			return err
		}
		rs.listed = r
	}
	if r.list == nil {
		if rs.late++; rs.late > maxLate {
			return errLate
		}
		return r.collection.Apply(store.Batch{Changes: []store.Change{change}, Checkpoint: rs.checkpoint(r)})
	}
	return r.list.Apply([]store.Change{change})
}

// complete makes the objects visible that are added as a list.
func (rs *resources) complete() error {
	r := rs.listed
	if r == nil || r.list == nil {
		return nil
	}
	err := r.list.Commit(rs.checkpoint(r))
	r.list = nil
	return err
}

// checkpoint returns a checkpoint at the highest resourceVersion of a resource's objects.
func (rs *resources) checkpoint(r *resource) store.Checkpoint {
	return store.Checkpoint{RV: r.rv, LastList: rs.at}
}

// resource returns the resource of a kind, which has no objects at first. Its name comes from the
// server's discovery, or is a guess if the bundle does not have that.
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

// version returns the resources that the server served in a version.
func (rs *resources) version(v schema.GroupVersion) []metav1.APIResource {
	for _, l := range rs.served {
		if l.GroupVersion == v.String() {
			return l.APIResources
		}
	}
	return nil
}

// commit makes all resources visible.
func (rs *resources) commit(warn func(format string, args ...any)) error {
	for _, r := range rs.found {
		rs.listed = r
		if err := rs.complete(); err != nil {
			return err
		}
	}
	for _, r := range rs.found {
		definition, err := rs.definition(r)
		if err != nil {
			return err
		}
		refused := checkValues(definition)
		if len(definition) > maxDefinitionBytes {
			refused = fmt.Errorf("it has %d bytes", len(definition))
		}
		if refused != nil {
			definition, refused = nil, fmt.Errorf("definition of %s: %w", r.info.ID, refused)
		}
		d, err := upstream.DescribeOffline(rs.version(r.info.GVR().GroupVersion()), definition, r.info.GVR())
		if err == nil {
			err = refused
		}
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
