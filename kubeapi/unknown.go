package kubeapi

import (
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// Unknown is a resource that is to be served, and that the server has not named yet.
type Unknown struct {
	schema.GroupResource
	Version string // empty if it is not known

	// Problem is why the server has not named it; empty while it is being asked for the first time.
	Problem string
}

// Asking reports whether the server is being asked for the resource for the first time: it may be known in a moment.
func (x Unknown) Asking() bool { return x.Problem == "" }

// unknowns are the resources that are not known at the time of a request.
type unknowns []Unknown

func (s *Server) unknown() unknowns {
	if s.opts.Unknown == nil {
		return nil
	}
	return s.opts.Unknown()
}

// find returns the resource that a path names, nil if it is not among them.
func (u unknowns) find(p path) *Unknown {
	i := slices.IndexFunc(u, func(x Unknown) bool {
		return x.GroupResource == p.GroupResource() && (x.Version == "" || x.Version == p.Version)
	})
	if i < 0 {
		return nil
	}
	return &u[i]
}

// of returns one in a version of a group, which has one.
func (u unknowns) of(gv schema.GroupVersion) *Unknown {
	return &u[slices.IndexFunc(u, func(x Unknown) bool { return x.Group == gv.Group && (x.Version == gv.Version || x.Group == "") })]
}

// asking reports whether the server is being asked for one of them for the first time. Clients keep
// documents for hours.
func (u unknowns) asking() bool { return slices.ContainsFunc(u, Unknown.Asking) }

// versions returns the versions of groups that they are in, as far as they are known.
func (u unknowns) versions() []schema.GroupVersion {
	var out []schema.GroupVersion
	for _, x := range u {
		gv := schema.GroupVersion{Group: x.Group, Version: x.Version}
		if x.Group == "" {
			gv.Version = "v1"
		}
		if gv.Version != "" && !slices.Contains(out, gv) {
			out = append(out, gv)
		}
	}
	return out
}

// err is the answer to a request for the resource. Unless it may be known in a moment, the client is not
// asked to wait.
func (x *Unknown) err() error {
	if x.Asking() {
		return notReady()
	}
	err := status.Error(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf(
		"%s can't be served yet, because the server has not named it: %s", x.GroupResource, x.Problem))
	err.ErrStatus.Details = &metav1.StatusDetails{Group: x.Group, Kind: x.Resource}
	return err
}

func notReady() error {
	return later("not all cached resources are known yet: the server is being asked for them")
}
