package bundle

import (
	"encoding/json"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// resources are those that a bundle has objects of.
type resources struct {
	served []*metav1.APIResourceList
	found  map[schema.GroupKind]*resource // in one version
}

// resource is what a bundle has of a resource.
type resource struct {
	info    store.Info
	objects map[string]*object.Object // by key
}

func newResources(served []*metav1.APIResourceList) *resources {
	return &resources{served: served, found: map[schema.GroupKind]*resource{}}
}

// add adds the objects of a file: an array, a list or one object. What is none of these, such as the errors
// of a collector, is left out.
func (rs *resources) add(name string, body []byte) error {
	var list struct {
		metav1.TypeMeta
		Items []json.RawMessage `json:"items"`
	}
	switch {
	case len(body) == 0:
		return nil
	case body[0] == '[':
		if err := json.Unmarshal(body, &list.Items); err != nil {
			return err
		}
	case body[0] != '{':
		return nil
	default:
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		if !strings.HasSuffix(list.Kind, "List") {
			list.Items = []json.RawMessage{body}
		}
	}
	of := schema.FromAPIVersionAndKind(list.APIVersion, strings.TrimSuffix(list.Kind, "List"))
	if of.Kind == "" {
		of = rs.namedLike(name)
	}
	if of.Kind != "" && len(list.Items) == 0 {
		rs.resource(of, strings.Contains(strings.TrimPrefix(name, folder), "/")) // there are none
	}
	for _, raw := range list.Items {
		if raw[0] != '{' {
			return nil
		}
		if err := rs.addObject(raw, of); err != nil {
			return err
		}
	}
	return nil
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
func (rs *resources) addObject(raw json.RawMessage, of schema.GroupVersionKind) error {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		return err
	}
	var m metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &m); err != nil || m.Name == "" {
		return nil //nolint:nilerr // no object
	}
	if m.Kind != "" && m.APIVersion != "" {
		of = m.GroupVersionKind()
	}
	if of.Kind == "" {
		return nil
	}
	o["apiVersion"], o["kind"] = quoted(of.GroupVersion().String()), quoted(of.Kind)
	whole, err := json.Marshal(o)
	if err != nil {
		return err
	}
	parsed, err := object.Parse(whole)
	if err != nil {
		return err
	}
	r := rs.resource(of, m.Namespace != "")
	if r.info.Version == of.Version {
		r.objects[parsed.Key()] = parsed
	}
	return nil
}

func quoted(s string) json.RawMessage {
	b, _ := json.Marshal(s) // of a string, always
	return b
}

// resource returns the resource of a kind, which has no objects at first. What it is called is what the
// server said, or a guess if the bundle does not have that.
func (rs *resources) resource(of schema.GroupVersionKind, namespaced bool) *resource {
	if r := rs.found[of.GroupKind()]; r != nil {
		return r
	}
	guess, _ := meta.UnsafeGuessKindToResource(of)
	r := &resource{objects: map[string]*object.Object{}}
	rs.found[of.GroupKind()] = r
	r.info = store.Info{Group: of.Group, Version: of.Version, Resource: guess.Resource, Kind: of.Kind, Namespaced: namespaced}
	for _, x := range rs.version(of.GroupVersion()) {
		if x.Kind == of.Kind && !strings.Contains(x.Name, "/") {
			r.info.Resource, r.info.Namespaced = x.Name, x.Namespaced
		}
	}
	r.info.ID = r.info.GVR().GroupResource().String()
	return r
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

// describe returns what the bundle has about a resource beside its objects.
func (rs *resources) describe(r *resource) (store.Description, error) {
	var definition []byte
	if all := rs.found[schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}]; all != nil {
		if o := all.objects[r.info.ID]; o != nil {
			definition = o.JSON()
		}
	}
	return upstream.DescribeOffline(rs.version(r.info.GVR().GroupVersion()), definition, r.info.GVR())
}

// store stores the objects. Their newest resourceVersion is the collection's.
func (r *resource) store(db store.DB, description store.Description, at time.Time) error {
	c, err := db.Open(r.info)
	if err != nil {
		return err
	}
	list, err := c.Replace()
	if err != nil {
		return err
	}
	var changes []store.Change
	rv := "1"
	for key, o := range r.objects {
		changes = append(changes, store.Change{Key: key, Object: o})
		if order, ok := object.CompareRV(o.GetResourceVersion(), rv); ok && order > 0 {
			rv = o.GetResourceVersion()
		}
	}
	if err := list.Apply(changes); err != nil {
		return err
	}
	if err := list.Commit(store.Checkpoint{RV: rv, LastList: at}); err != nil {
		return err
	}
	return c.Describe(description)
}
