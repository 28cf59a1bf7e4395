package discovery

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/snapcache/snapcache/store"
)

// Resource is a resource that the API serves.
type Resource struct {
	store.Info
	store.Description

	// Verbs are the verbs that the API offers; nil for those of a resource that is read.
	Verbs metav1.Verbs
}

// Documents are the discovery documents of a set of resources. They are immutable and safe for
// concurrent use.
type Documents struct {
	byPath map[string]document
	stale  []schema.GroupVersion
	empty  bool
}

// Has reports whether there is a document at a path.
func (d *Documents) Has(path string) bool {
	_, ok := d.byPath[strings.TrimSuffix(path, "/")]
	return ok
}

// Empty reports whether no resource is served that can be read.
func (d *Documents) Empty() bool { return d.empty }

// IsStale reports whether nothing is known of the resources in a version, which is listed all the same.
func (d *Documents) IsStale(gv schema.GroupVersion) bool { return slices.Contains(d.stale, gv) }

// document has the bodies of one path.
type document struct {
	legacy     []byte // nil for /api, whose document contains the server's address
	aggregated []byte // nil if the path has none
	etag       string // of aggregated, in quotes
}

// New returns the documents of an API that serves resources. Several collections may be of one
// resource, for example one for each namespace: the documents list it once.
//
// The core group has the version v1 even without resources, because clients rely on it.
//
// Versions of unknown resources are listed as stale, without resources, if no other resource of them is
// served: clients then know that the list is not complete, and leave them out. Of a version with
// others they would ignore these too, so it is not stale.
func New(resources []Resource, unknown ...schema.GroupVersion) *Documents {
	d := &Documents{byPath: map[string]document{}, empty: !slices.ContainsFunc(resources, isRead)}
	groups := collect(resources)
	for _, gv := range unknown {
		if groups[gv.Group] == nil {
			groups[gv.Group] = group{}
		}
		if len(groups[gv.Group][gv.Version]) == 0 {
			groups[gv.Group][gv.Version] = nil
			d.stale = append(d.stale, gv)
		}
	}
	core := d.aggregated("", groups[""])
	delete(groups, "")
	named := []apidiscovery.APIGroupDiscovery{}
	for _, name := range groups.sorted() {
		named = append(named, d.aggregated(name, groups[name]))
	}
	d.addAll(core, named)
	return d
}

// aggregated returns the part of a group in the aggregated document.
func (d *Documents) aggregated(name string, g group) apidiscovery.APIGroupDiscovery {
	out := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, v := range g.sorted() {
		version := apidiscovery.APIVersionDiscovery{Version: v, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		if d.IsStale(schema.GroupVersion{Group: name, Version: v}) {
			version.Freshness = apidiscovery.DiscoveryFreshnessStale
		}
		for _, plural := range slices.Sorted(maps.Keys(g[v])) {
			version.Resources = append(version.Resources, g[v][plural].aggregated())
		}
		out.Versions = append(out.Versions, version)
	}
	return out
}

// groups are resources by group, version and plural name.
type groups map[string]group

type group map[string]map[string]Resource

func collect(resources []Resource) groups {
	all := groups{"": {"v1": {}}}
	for _, r := range resources {
		if all[r.Group] == nil {
			all[r.Group] = group{}
		}
		if all[r.Group][r.Version] == nil {
			all[r.Group][r.Version] = map[string]Resource{}
		}
		// Of two collections, one may not be described yet.
		if known, ok := all[r.Group][r.Version][r.Resource]; !ok || known.Singular == "" {
			all[r.Group][r.Version][r.Resource] = r
		}
	}
	return all
}

// sorted returns the names of the groups. Groups of custom resources are last, as on a kube-apiserver,
// because a client resolves an ambiguous name to the first group that has it.
func (g groups) sorted() []string {
	return slices.SortedFunc(maps.Keys(g), func(a, b string) int {
		return cmp.Or(cmp.Compare(g[a].custom(), g[b].custom()), cmp.Compare(a, b))
	})
}

// custom returns 1 if the group has a custom resource, else 0.
func (g group) custom() int {
	for _, resources := range g {
		for _, r := range resources {
			if r.Custom {
				return 1
			}
		}
	}
	return 0
}

// sorted returns the versions of the group, the newest of the most stable ones first.
func (g group) sorted() []string {
	return slices.SortedFunc(maps.Keys(g), func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
}

// isRead reports whether a resource can be read.
func isRead(r Resource) bool { return r.Verbs == nil }

// offered returns the verbs of a resource.
func (r Resource) offered() metav1.Verbs {
	if isRead(r) {
		return verbs
	}
	return r.Verbs
}

// The verbs that the API offers for a resource that is read, and for its subresources.
var (
	verbs            = metav1.Verbs{"get", "list", "watch"}
	subresourceVerbs = metav1.Verbs{"get"}
)

// aggregated returns the entry of the resource in an APIGroupDiscoveryList.
func (r Resource) aggregated() apidiscovery.APIResourceDiscovery {
	kind := &metav1.GroupVersionKind{Kind: r.Kind}
	if r.Custom { // for other resources a kube-apiserver leaves group and version to the client
		kind.Group, kind.Version = r.Group, r.Version
	}
	entry := apidiscovery.APIResourceDiscovery{
		Resource:         r.Resource,
		ResponseKind:     kind,
		Scope:            apidiscovery.ScopeCluster,
		SingularResource: r.Singular,
		Verbs:            r.offered(),
		ShortNames:       r.ShortNames,
		Categories:       r.Categories,
	}
	if r.Namespaced {
		entry.Scope = apidiscovery.ScopeNamespace
	}
	for _, sub := range slices.Sorted(slices.Values(r.Subresources)) {
		entry.Subresources = append(entry.Subresources, apidiscovery.APISubresourceDiscovery{
			Subresource: sub, ResponseKind: kind, Verbs: subresourceVerbs,
		})
	}
	return entry
}
