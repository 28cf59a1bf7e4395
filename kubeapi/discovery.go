package kubeapi

import (
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/kubeapi/internal/discovery"
)

// discovery answers requests for discovery documents, and for unknown paths.
func (s *Server) discovery(w http.ResponseWriter, r *request) {
	if s.servesKept(w, r) {
		return
	}
	unknown := s.unknown() // before the collections are read: one may come between
	d, err := s.catalog.documents(unknown.versions())
	switch {
	case err != nil:
		sendError(w, r, err)
	case r.Method != http.MethodGet:
		sendError(w, r, notAllowed())
	case r.kind == forDiscovery && (unknown.asking() || len(unknown) > 0 && d.Empty()):
		sendError(w, r, notReady())
	case d.IsStale(r.path.GroupVersion()):
		sendError(w, r, unknown.of(r.path.GroupVersion()).err())
	case !d.Serve(w, r.Request, r.pretty()):
		_, builtIn, _ := s.catalog.of(r.path.GroupVersionResource)
		sendError(w, r, noSuchPath(r.named && builtIn))
	}
}

// servesKept answers with a document of the server's that was kept, if its answers are what the caller gets otherwise.
func (s *Server) servesKept(w http.ResponseWriter, r *request) bool {
	return s.opts.Documents != nil && s.opts.Forward != nil && r.Method == http.MethodGet && s.opts.Forward.Takes(r.Request) &&
		s.opts.Documents.Serve(w, r.Request, r.pretty())
}

// documents returns the discovery documents of the catalog. unknown are versions that have resources
// that are not known.
func (c *catalog) documents(unknown []schema.GroupVersion) (*discovery.Documents, error) {
	all, err := c.all()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.docs == nil || !slices.Equal(c.documented, all) || !slices.Equal(c.undocumented, unknown) {
		resources := make([]discovery.Resource, 0, len(all)+len(reviews))
		for _, s := range all {
			resources = append(resources, discovery.Resource{Info: s.info, Description: *s.desc})
		}
		resources = append(resources, reviews...)
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
