package kubeapi

import (
	"context"
	"errors"
	"net/http"
	urlpath "path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/snapcache/snapcache/kubeapi/internal/selector"
)

// answerer is the part of a Server that answers a request.
type answerer int

const (
	refused  answerer = iota // with decision.err
	byServer                 // it is forwarded
	byHealth
	byMetrics
	byVersion
	byOpenAPI
	byDiscovery
	byReview     // of the caller's own rights
	byObject     // a get
	byCollection // a list or a watch
)

// limited reports whether the requests that are answered at once are limited. The server limits forwarded
// ones.
func (a answerer) limited() bool {
	return a == refused || a == byDiscovery || a == byReview || a == byObject || a == byCollection
}

// answers reports whether the requests are answered in place of the server.
func (a answerer) answers() bool { return a >= byVersion }

// decision is who answers a request.
type decision struct {
	by   answerer
	open bool  // it is not authorized here
	err  error // of refused; that no collection covers it, of byCollection: the faults of its form are reported first

	of        []*served // the collections of the resource, ordered by ID; empty for none
	in        []*served // of byObject: the collections that may have the object
	elsewhere bool      // of byObject: if they don't, the server is asked
	query     query     // of byCollection, without its form and options

	// refresh has the definition of the resource read again, once the request is authorized. The request
	// names something that the resource does not have as far as is known here, and is routed again. Nil
	// for other requests.
	refresh func(context.Context)
}

// resolved is the key of a request in its context, after WithBodies.
type resolved struct{ *Server }

// resolve returns a request with the decision on it, which is made once.
func (s *Server) resolve(r *http.Request) *request {
	if x, ok := r.Context().Value(resolved{s}).(*request); ok {
		x.Request = r // a handler around s may have made another one of it
		return x
	}
	x := newRequest(r)
	x.decision = s.route(x)
	return x
}

// route decides who answers a request. It is the only place that does.
//
// A request that the cache can't answer is forwarded, if the Forwarder takes requests of the caller. A forwarded
// request is not authorized here: the server does that, by the path and the credentials as they came.
// Whatever is answered here is authorized here, except for health and reviews of the caller's own rights, and
// so are documents wherever they come from: the decision is then remembered for the time without the server. A
// watch is authorized again here while it lasts, wherever its events come from.
func (s *Server) route(r *request) decision {
	forwarded := decision{by: byServer, open: true}
	get := r.Method == http.MethodGet
	switch {
	case r.kind == forHealth:
		return decision{by: byHealth, open: true}
	case r.kind == forMetrics && get && s.opts.Scrape != nil: // never the server's
		return decision{by: byMetrics}
	case r.isReview(): // likewise
		return decision{by: byReview, open: true}
	}
	takes := s.opts.Forward != nil && s.opts.Forward.Takes(r.Request)
	switch {
	case takes && (!get || r.isOdd()):
		return forwarded
	case takes && r.isDocument() && s.opts.Forward.Reaches(r.Request): // the server has more documents
		return decision{by: byServer}
	case takes && r.kind != forResource && !r.isDocument():
		return forwarded
	case r.kind != forResource:
		return decision{by: s.documentBy(r)}
	}
	unknown := s.unknown() // before the collections are read: one may come between
	of, builtIn, err := s.catalog.of(r.path.GroupVersionResource)
	switch {
	case err != nil:
		return decision{err: err}
	case len(of) == 0 && takes:
		return forwarded
	case r.path.reviewed() != "":
		return decision{err: r.noReview()}
	case len(of) == 0 && unknown.find(r.path) != nil:
		return decision{err: unknown.find(r.path).err()}
	case len(of) == 0:
		return decision{err: noSuchPath(builtIn)}
	}
	d := r.within(of)
	if takes && (d.by == refused || isNotCovered(d.err)) {
		return decision{by: byServer, open: true, of: of}
	}
	complete := func(c *served) bool { return c.complete(r.path.namespace) } // else the object may exist elsewhere
	d.elsewhere = takes && !slices.ContainsFunc(d.in, complete)
	if of[0].Refresh != nil && of[0].lacks(r) {
		d.refresh = of[0].Refresh
	}
	return d
}

// within returns the decision on a request for a resource if nothing is forwarded.
func (r *request) within(of []*served) decision {
	d, one, p := decision{of: of}, of[0], r.path
	switch {
	case one.misplaced(p):
		d.err = noSuchPath(!one.desc.Custom)
	case one.lacksSubresource(p) && one.desc.Custom:
		d.err = apierrors.NewNotFound(groupResource(one.info), p.name)
	case one.lacksSubresource(p):
		d.err = notServed()
	case r.Method != http.MethodGet, p.subresource != "" && !one.wholeObject(p.subresource):
		d.err = notAllowed()
	case p.name != "" && !p.watch:
		d.by, d.in = byObject, of
		if lacks := func(s *served) bool { return !s.has(p.namespace) }; slices.ContainsFunc(of, lacks) {
			d.in = slices.DeleteFunc(slices.Clone(of), lacks)
		}
		if len(d.in) == 0 {
			d.err = outOfScope(of)
		}
	default:
		d.by, d.err = byCollection, d.query.cover(r, of)
	}
	return d
}

// documentBy returns who answers a request for a document here.
func (s *Server) documentBy(r *request) answerer {
	switch {
	case r.kind == forVersion:
		return byVersion
	case r.kind == forOpenAPI && r.Method == http.MethodGet && s.opts.OpenAPI != nil && strings.HasPrefix(r.URL.Path+"/", "/openapi/v3/"):
		return byOpenAPI
	}
	return byDiscovery // which refuses what is none
}

// isDocument reports whether a request is for a document about the API itself.
func (r *request) isDocument() bool {
	return r.kind == forVersion || r.kind == forOpenAPI || r.kind == forDiscovery
}

// isOdd reports whether a path is one that servers may read in different ways: the server judges it.
func (r *request) isOdd() bool {
	p := strings.TrimSuffix(r.URL.Path, "/")
	return p != "" && urlpath.Clean(p) != p || strings.Contains(strings.ToLower(r.URL.RawPath), "%2f")
}

// lacks reports whether a GET names something that the resource does not have, as far as that is known
// here: its definition may have changed.
func (s *served) lacks(r *request) bool {
	switch {
	case r.Method != http.MethodGet || !s.desc.Custom:
		return false
	case s.misplaced(r.path), s.lacksSubresource(r.path):
		return true
	}
	_, err := s.fields.Parse("", r.query.Get("fieldSelector"))
	return err != nil && !errors.Is(err, selector.ErrNotStored)
}

// misplaced reports whether a path has no meaning for the resource, such as a namespace of one that has
// none.
func (s *served) misplaced(p path) bool {
	return p.namespace != "" && !s.info.Namespaced || p.name != "" && !p.watch && p.namespace == "" && s.info.Namespaced ||
		p.watch && p.subresource != ""
}

// lacksSubresource reports whether a path names a subresource that the resource does not have.
func (s *served) lacksSubresource(p path) bool {
	return p.subresource != "" && !s.wholeObject(p.subresource) && !knownSubresources.Has(p.subresource)
}

// wholeObject reports whether a GET of a subresource returns the object itself.
func (s *served) wholeObject(subresource string) bool {
	return slices.Contains(s.desc.Subresources, subresource)
}

// knownSubresources are the subresources of a kube-apiserver that are not the object. They are not served
// here.
var knownSubresources = sets.New(
	"attach", "binding", "eviction", "exec", "log", "portforward", "proxy", "scale", "token", "finalize", "approval")
