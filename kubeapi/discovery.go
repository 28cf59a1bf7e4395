package kubeapi

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/kubeapi/internal/discovery"
)

// discovery answers requests for documents about what is served. pending is that of before the
// request; builtIn is set if the path is in a group that is built in.
func (s *Server) discovery(w http.ResponseWriter, r *http.Request, pending, builtIn bool) {
	d, err := s.catalog.documents()
	switch {
	case err != nil:
		sendError(w, r, err)
	case r.Method != http.MethodGet:
		sendError(w, r, notAllowed())
	case pending && documented(r.URL.Path):
		sendError(w, r, notReady()) // clients keep documents for hours
	case !d.Serve(w, r, pretty(r, queryOf(r))):
		noSuchPath(w, r, builtIn)
	}
}

// documented reports whether a path may have a document.
func documented(path string) bool {
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
}

// documents returns the discovery documents of what is served now.
func (c *catalog) documents() (*discovery.Documents, error) {
	all, err := c.all()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.docs == nil || !slices.Equal(c.documented, all) {
		resources := make([]discovery.Resource, len(all))
		for i, s := range all {
			resources[i] = discovery.Resource{Info: s.info, Description: *s.desc}
		}
		c.docs, c.documented = discovery.New(resources), all
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
