package kubeapi

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/kubeapi/internal/selector"
)

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
func parseOptions(r *http.Request) (internalversion.ListOptions, error) {
	var opts internalversion.ListOptions
	query := r.URL.Query()
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
	opts.LabelSelector, opts.FieldSelector = nil, nil // a watch would hold them besides those of package selector
	return opts, nil
}
