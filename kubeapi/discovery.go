package kubeapi

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/kubeapi/internal/discovery"
)

// discovery answers requests for documents about what is served. unknown are the resources that were not
// known before the request; builtIn is set if the path is in a group that is built in.
func (s *Server) discovery(w http.ResponseWriter, r *http.Request, unknown unknowns, builtIn bool) {
	d, err := s.catalog.documents(unknown.versions())
	p, _ := parsePath(r.URL.Path)
	switch {
	case err != nil:
		sendError(w, r, err)
	case r.Method != http.MethodGet:
		sendError(w, r, notAllowed())
	case documented(r.URL.Path) && (unknown.asking() || len(unknown) > 0 && d.Empty()):
		sendError(w, r, notReady())
	case d.IsStale(p.GroupVersion()):
		sendError(w, r, unknown.of(p.GroupVersion()).err())
	case !d.Serve(w, r, pretty(r, queryOf(r))):
		noSuchPath(w, r, builtIn)
	}
}

// documented reports whether a path may have a document.
func documented(path string) bool {
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
}

// documents returns the discovery documents of what is served now. unknown are versions that have
// resources that are not known.
func (c *catalog) documents(unknown []schema.GroupVersion) (*discovery.Documents, error) {
	all, err := c.all()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.docs == nil || !slices.Equal(c.documented, all) || !slices.Equal(c.undocumented, unknown) {
		resources := make([]discovery.Resource, len(all))
		for i, s := range all {
			resources[i] = discovery.Resource{Info: s.info, Description: *s.desc}
		}
		c.docs, c.documented, c.undocumented = discovery.New(resources, unknown...), all, unknown
	}
	return c.docs, nil
}

// GroupVersions returns the versions of groups that are served.
func (s *Server) GroupVersions() []schema.GroupVersion {
	all, err := s.catalog.all()
	if err != nil {
		return nil
	}
	var out []schema.GroupVersion
	for _, x := range all {
		if gv := x.info.GVR().GroupVersion(); !slices.Contains(out, gv) {
			out = append(out, gv)
		}
	}
	return out
}
