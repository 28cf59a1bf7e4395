package kubeapi

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/kubeapi/internal/selector"
)

// request is a request, read once: verb, path and query, as in the RequestInfo of a kube-apiserver, and who
// answers it.
type request struct {
	*http.Request

	kind  kind
	verb  verb       // as a kube-apiserver names it; empty for an unknown method
	query url.Values // nil for none

	path  path // zero unless named is set
	named bool // the path is one of a resource, or of a group version

	decision decision

	forwarded bool // it was, whatever was decided
}

// kind is the purpose of a request.
type kind int

// The kinds. Documents are about the API itself.
const (
	forOther kind = iota
	forHealth
	forMetrics
	forVersion   // a document
	forOpenAPI   // a document
	forDiscovery // a document
	forResource
)

// newRequest reads a request, without a decision on it.
func newRequest(r *http.Request) *request {
	q := &request{Request: r}
	q.path, q.named = parsePath(r.URL.Path)
	if r.URL.RawQuery != "" { // parsing it is a part of the cost of a small answer
		q.query = r.URL.Query()
	}
	q.kind, q.verb = q.readKind(), q.readVerb()
	return q
}

func (r *request) readKind() kind {
	switch at := r.URL.Path; {
	case access.IsHealth(at):
		return forHealth
	case at == "/metrics":
		return forMetrics
	case at == "/version", at == "/version/":
		return forVersion
	case strings.HasPrefix(at, "/openapi/"):
		return forOpenAPI
	case r.path.Resource != "":
		return forResource
	case at == "/api", at == "/apis", strings.HasPrefix(at, "/api/"), strings.HasPrefix(at, "/apis/"):
		return forDiscovery
	}
	return forOther
}

// readVerb returns the verb; empty for an unknown method.
func (r *request) readVerb() verb {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if r.path.name == "" {
			return "deletecollection"
		}
		return "delete"
	case http.MethodGet, http.MethodHead:
	default:
		return ""
	}
	// As for a kube-apiserver, everything but 0 and false is true.
	watch := r.query.Has("watch") && r.query.Get("watch") != "0" && !strings.EqualFold(r.query.Get("watch"), "false")
	switch {
	case r.path.watch, r.path.name == "" && watch:
		return verbWatch
	case r.path.name != "":
		return verbGet
	}
	return verbList
}

// pretty reports whether the answer is for a person to read, as a kube-apiserver decides it.
func (r *request) pretty() bool {
	if p := r.query.Get("pretty"); p != "" {
		b, err := strconv.ParseBool(p)
		return err == nil && b
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// path is the resource that a request's path names.
type path struct {
	schema.GroupVersionResource
	namespace, name, subresource string

	// watch is set for the old form of a watch, /api/v1/watch/pods.
	watch bool
}

// parsePath reads the path of a resource: /api/v1/… or /apis/GROUP/VERSION/…. ok is false for every
// other path. An empty resource stands for the document of a group version.
func parsePath(p string) (_ path, ok bool) {
	parts := strings.Split(strings.Trim(p, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case parts[0] == "api" && len(parts) >= 2:
		gv.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) >= 3:
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return path{}, false
	}
	var out path
	if len(parts) > 1 && parts[0] == "watch" {
		out.watch, parts = true, parts[1:]
	}
	if len(parts) > 1 && parts[0] == "namespaces" {
		// A subresource of the namespace itself looks like a resource in it.
		if out.namespace = parts[1]; len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		} else {
			out.namespace = ""
		}
	}
	parts = append(parts, "", "", "")
	out.GroupVersionResource, out.name = gv.WithResource(parts[0]), parts[1]
	out.subresource = strings.TrimRight(strings.Join(parts[2:], "/"), "/")
	return out, true
}

// parseOptions reads the options of a list or watch, with the errors of a kube-apiserver. The
// selectors are left to package selector.
func parseOptions(query url.Values) (internalversion.ListOptions, error) {
	var opts internalversion.ListOptions
	if err := selector.TooLong(query.Get("labelSelector"), query.Get("fieldSelector")); err != nil {
		return opts, badRequest(err.Error())
	}
	if err := metascheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &opts); err != nil {
		return opts, badRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(&opts, true)
	if errs := validation.ValidateListOptions(&opts, true); len(errs) > 0 {
		return opts, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	opts.LabelSelector, opts.FieldSelector = nil, nil // a watch would hold them besides package selector's
	return opts, nil
}
