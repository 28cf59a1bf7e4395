package kubeapi

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The values of Accept that clients send, and some that none should.
const (
	acceptTable         = "application/json;as=Table;v=v1;g=meta.k8s.io"
	acceptKubectl       = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	acceptMetadata      = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	acceptMetadataList  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	acceptProtobuf      = "application/vnd.kubernetes.protobuf"
	acceptDiscovery     = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	acceptDiscoveryBeta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
)

var accepts = []string{
	"", "*/*", "application/json", "application/*", acceptTable, acceptKubectl, acceptMetadata, acceptMetadataList,
	acceptMetadataList + ",application/json", acceptMetadata + ",application/json",
	acceptProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + acceptMetadataList + ",application/json",
	acceptProtobuf, acceptProtobuf + ",application/json", acceptProtobuf + ", */*", "application/yaml", "application/cbor", "text/html",
	"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "nonsense", "application/json;q=0.1,text/html;q=0.9",
	"application/json;q=0", "application/json;q=x", "application/json;charset=utf-8", "application/json;stream=watch",
	"application/json;pretty=1", "application/json;as=Table;v=v2;g=meta.k8s.io", "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
	"application/json;as=Nothing;v=v1;g=meta.k8s.io", "application/json;as=Nothing;v=v1;g=meta.k8s.io,application/json",
	"application/json;as=Table;v=v1;g=example.com", "application/json;as=Table", "APPLICATION/JSON", ", ,",
	"application/json;q=0.5," + acceptTable + ";q=0.4", acceptDiscovery, acceptDiscoveryBeta,
}

var agents = []string{"", "", "curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "kubectl/v1.36.3"}

var labelSelectors = []string{
	"app=web", "app==web", "app!=web", "app in (web,db)", "app notin (web)", "app", "!app", "tier=front,app=web", " app = web ", "none=such",
	"count>3", "count<3", "count>x", "app=", "app in ()", "kubernetes.io/role=worker", "",
	"app=a=b", "a b", "app in web", "!!", "-x=y", "app in (", "=x", ",", "app=web,", "ä=b", "app=ü", "app=" + strings.Repeat("x", 64), "x/y/z=1", "app notin (web",
}

var fieldSelectors = []string{
	"metadata.name=missing", "metadata.name!=missing", "metadata.namespace=ns", "metadata.namespace!=ns", "metadata.namespace=empty",
	"metadata.name=web,metadata.namespace=ns", "metadata.name=web,metadata.name=web-0", "metadata.name==web", "metadata.name=", "",
	"foo=bar", "metadata.uid=x", "metadata.labels.app=web", "metadata.name", "metadata.name in (a)", `metadata.name=a\,b`, `metadata.name=a\b`, "=", ",",
	"metadata.name=a=b", ".metadata.name=a", "metadata.name>a", "spec.nope=1,metadata.name=web",
}

// generator generates requests. The same seed and the same world give the same requests, but for the
// resourceVersions in them.
type generator struct {
	*rand.Rand
	resources []*resource
}

func newGenerator(seed uint64, resources []*resource) *generator {
	return &generator{rand.New(rand.NewPCG(seed, 0)), resources}
}

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

// all returns the requests of every kind, by the name of the kind.
func (g *generator) all() map[string][]request {
	return map[string][]request{
		"basic":     g.basics(),
		"get":       g.random(120, g.getPath, g.getQuery),
		"list":      g.random(300, g.listPath, g.listQuery),
		"pages":     g.pages(60),
		"watch":     g.random(200, g.watchPath, g.watchQuery),
		"verb":      g.verbs(60),
		"path":      g.paths(),
		"discovery": g.discovery(),
	}
}

// basics returns the requests that every client makes, of each resource.
func (g *generator) basics() []request {
	var all []request
	add := func(path, query, accept string) {
		all = append(all, request{method: http.MethodGet, path: path, query: query, accept: accept})
	}
	for _, r := range g.resources {
		for _, accept := range []string{"", acceptKubectl, acceptMetadataList} {
			add(r.path(""), "", accept)
			add(r.path(""), "resourceVersion=0", accept)
			for _, rv := range []string{r.before, r.old, r.newest} {
				add(r.path(""), "resourceVersionMatch=Exact&resourceVersion="+rv, accept)
			}
		}
		for _, accept := range []string{"", acceptKubectl, acceptMetadata} {
			add(r.path(""), "watch=1&timeoutSeconds=1&resourceVersion=0", accept)
			add(r.path(""), "watch=1&timeoutSeconds=1&resourceVersion="+r.old, accept)
			add(r.path(""), "watch=1&timeoutSeconds=1&resourceVersion="+r.newest, accept)
			add(r.path(""), "watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", accept)
		}
		if !r.clusterScoped {
			add(r.path("ns"), "", "")
			add(r.path("ns"), "watch=1&timeoutSeconds=1&labelSelector=app%3Dweb&resourceVersion="+r.old, "")
		}
		add(r.path(""), "watch=1&timeoutSeconds=1&labelSelector=app%3Dweb&resourceVersion="+r.old, "")
		for _, s := range r.selectors {
			add(r.path(""), url.Values{"fieldSelector": {s}}.Encode(), "")
		}
		for _, o := range r.objects {
			add(r.path(o.Namespace)+"/"+o.Name, "", "")
			add(r.path(o.Namespace)+"/"+o.Name, "includeObject=None", acceptTable)
		}
	}
	return all
}

// random returns n requests for random resources.
func (g *generator) random(n int, path func(*resource) string, query func(*resource) url.Values) []request {
	var all []request
	for range n {
		r := pick(g, g.resources)
		q := request{method: http.MethodGet, path: path(r), query: query(r).Encode()}
		if g.IntN(3) == 0 {
			q.accept = pick(g, accepts)
		}
		if g.IntN(8) == 0 {
			q.agent = pick(g, agents)
		}
		all = append(all, q)
	}
	return all
}

// namespace returns a namespace for a path; empty, for all, in half of the cases.
func (g *generator) namespace(r *resource) string {
	if r.clusterScoped {
		return ""
	}
	return pick(g, []string{"", "", "", "", "", "ns", "ns-a", "ns0", "empty", "missing", "kube-system"})
}

func (g *generator) listPath(r *resource) string {
	path := r.path(g.namespace(r))
	if g.IntN(20) == 0 {
		path += "/"
	}
	return path
}

func (g *generator) getPath(r *resource) string {
	namespace, name := "ns", "missing"
	if len(r.objects) > 0 {
		o := pick(g, r.objects)
		namespace, name = o.Namespace, o.Name
	}
	switch g.IntN(12) {
	case 0:
		name = pick(g, []string{"missing", "a%20b", "%C3%BC", "UPPER", "a..b", "x.y.z", "-", "%22%3C%3E"})
	case 1:
		namespace = "missing"
	case 2:
		namespace = "ns-a"
	}
	if r.clusterScoped {
		namespace = ""
	} else if namespace == "" {
		namespace = "ns"
	}
	path := r.path(namespace) + "/" + name
	switch g.IntN(12) {
	case 0:
		path += "/"
	case 1, 2:
		path += "/status"
	case 3:
		path += "/nothing"
	}
	return path
}

// watchPath returns a path to watch, of which some are legacy.
func (g *generator) watchPath(r *resource) string {
	path := g.listPath(r)
	if g.IntN(10) != 0 {
		return path
	}
	if g.IntN(2) == 0 {
		path = g.getPath(r)
	}
	return r.prefix() + "/watch" + strings.TrimPrefix(path, r.prefix())
}

// set sets a parameter to one of the values in one of n cases.
func (g *generator) set(q url.Values, n int, parameter string, values ...string) {
	if g.IntN(n) == 0 {
		q.Set(parameter, pick(g, values))
	}
}

func (g *generator) resourceVersions(r *resource) []string {
	return []string{"", "0", "0", r.newest, r.newest, r.old, r.old, r.before, "1", "99999999", "abc", "-1", "1.5", "18446744073709551616", "00", "+5", "0x10", " 5"}
}

func (g *generator) getQuery(r *resource) url.Values {
	q := url.Values{}
	g.set(q, 2, "resourceVersion", g.resourceVersions(r)...)
	g.set(q, 10, "resourceVersionMatch", "NotOlderThan", "Exact", "x")
	g.set(q, 6, "pretty", "1", "true", "false", "0", "x", "")
	g.set(q, 6, "includeObject", "None", "Metadata", "Object", "x", "")
	g.set(q, 10, "watch", "1", "true", "0")
	g.set(q, 15, "unknown", "x")
	g.set(q, 15, "limit", "1", "x")
	g.set(q, 15, "labelSelector", "app=none", "!!")
	g.set(q, 15, "fieldSelector", "metadata.name=none", "x")
	return q
}

func (g *generator) listQuery(r *resource) url.Values {
	q := url.Values{}
	g.set(q, 4, "labelSelector", labelSelectors...)
	g.set(q, 4, "fieldSelector", append(slices.Clone(fieldSelectors), r.selectors...)...)
	g.set(q, 3, "resourceVersion", g.resourceVersions(r)...)
	g.set(q, 5, "resourceVersionMatch", "NotOlderThan", "NotOlderThan", "Exact", "Exact", "x", "exact", "")
	g.set(q, 5, "limit", "1", "2", "500", "0", "-1", "x", "99999999999999999999", "")
	g.set(q, 15, "continue", g.tokens(r)...)
	g.set(q, 15, "timeoutSeconds", "1", "5", "0", "-1", "x", "1.5")
	g.set(q, 8, "pretty", "1", "true", "false", "0", "x", "")
	g.set(q, 8, "includeObject", "None", "Metadata", "Object", "x", "")
	g.set(q, 15, "watch", "0", "false")
	g.set(q, 15, "allowWatchBookmarks", "true", "x")
	g.set(q, 20, "sendInitialEvents", "true", "false", "x", "")
	g.set(q, 20, "unknown", "x")
	return q
}

func (g *generator) watchQuery(r *resource) url.Values {
	q := url.Values{"watch": {"1"}, "timeoutSeconds": {"1"}}
	g.set(q, 8, "watch", "true", "x", "", "1")
	g.set(q, 15, "timeoutSeconds", "2", "x")
	g.set(q, 4, "labelSelector", labelSelectors...)
	g.set(q, 4, "fieldSelector", append(slices.Clone(fieldSelectors), r.selectors...)...)
	g.set(q, 2, "resourceVersion", g.resourceVersions(r)...)
	if g.IntN(3) == 0 {
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
		q.Set("allowWatchBookmarks", "true")
	}
	g.set(q, 8, "sendInitialEvents", "true", "false", "x", "")
	g.set(q, 10, "resourceVersionMatch", "NotOlderThan", "Exact", "x")
	g.set(q, 8, "allowWatchBookmarks", "true", "false", "x", "")
	g.set(q, 15, "limit", "1", "x")
	g.set(q, 20, "continue", g.tokens(r)...)
	g.set(q, 8, "pretty", "1")
	g.set(q, 8, "includeObject", "None", "Metadata", "Object", "x")
	return q
}

// pages returns n requests for all pages of a list.
func (g *generator) pages(n int) []request {
	all := g.random(n, g.listPath, func(r *resource) url.Values {
		q := url.Values{"limit": {pick(g, []string{"1", "2", "3", "5"})}}
		g.set(q, 4, "labelSelector", "app=web", "app!=web")
		g.set(q, 6, "fieldSelector", "metadata.name!=web")
		g.set(q, 4, "resourceVersion", "", "0", r.newest, r.newest)
		g.set(q, 8, "resourceVersionMatch", "Exact", "NotOlderThan")
		return q
	})
	for i := range all {
		all[i].pages, all[i].accept = true, pick(g, []string{"", "", acceptMetadataList, acceptKubectl})
	}
	return all
}

// tokens returns continue tokens that no server issued.
func (g *generator) tokens(r *resource) []string {
	token := func(version, rv, start string) string {
		text := fmt.Sprintf(`{"v":%q,"rv":%s,"start":%q}`, version, rv, start)
		return base64.RawURLEncoding.EncodeToString([]byte(text))
	}
	good := token("meta.k8s.io/v1", r.newest, "ns/b\x00")
	return []string{
		good, good[:len(good)-3], good + "==", "x", "", "%%%", base64.RawURLEncoding.EncodeToString([]byte("{}")), base64.RawURLEncoding.EncodeToString([]byte("[")),
		token("meta.k8s.io/v2", r.newest, "ns/b\x00"), token("meta.k8s.io/v1", "-1", "ns/b\x00"), token("meta.k8s.io/v1", "0", "ns/b\x00"),
		token("meta.k8s.io/v1", "99999999", "ns/b\x00"), token("meta.k8s.io/v1", r.old, "ns/b\x00"), token("meta.k8s.io/v1", r.newest, ""),
		token("meta.k8s.io/v1", r.newest, "../../secrets/"), token("meta.k8s.io/v1", r.newest, "/ns/b\x00"), token("meta.k8s.io/v1", r.newest, "zzz"),
	}
}

// verbs returns n requests that are not for reading.
func (g *generator) verbs(n int) []request {
	all := g.random(n, func(r *resource) string {
		if g.IntN(2) == 0 {
			return g.listPath(r)
		}
		return g.getPath(r)
	}, g.getQuery)
	for i := range all {
		all[i].method = pick(g, []string{
			http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, "QUERY",
		})
	}
	return all
}
