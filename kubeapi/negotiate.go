package kubeapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
	"github.com/snapcache/snapcache/object"
)

// form is the representation of objects in an answer.
type form struct {
	as      string                     // "" for the objects themselves, asPartial or asTable
	version string                     // of asPartial or asTable: meta.k8s.io/v1 or meta.k8s.io/v1beta1
	include metav1.IncludeObjectPolicy // of a table
	pretty  bool
	drop    object.Prune // the fields that the client drops from the objects themselves
}

const (
	asPartial = "PartialObjectMetadata"
	asTable   = "Table"
)

// verb is the action of a request on a resource.
type verb string

const (
	verbGet   verb = "get"
	verbList  verb = "list"
	verbWatch verb = "watch"
)

// negotiate returns the form of an answer: the first one in the Accept header that exists. Only JSON
// does, which every known client accepts.
func negotiate(r *request, of *served) (form, error) {
	f := form{pretty: r.pretty(), drop: of.dropFor(r)}
	header := r.Header.Get("Accept")
	if header == "" || header == "application/json" { // the usual ones need no parser
		return f, nil
	}
	asked := of.desc.Custom // for another form; a kube-apiserver has one error for both if the resource is a custom one
	for _, clause := range goautoneg.ParseAccept(header) {
		if !status.IsJSON(clause) {
			continue
		}
		as := clause.Params["as"]
		if as == "" {
			return f, nil
		}
		asked = true
		known := clause.Params["g"] == metav1.GroupName && (clause.Params["v"] == "v1" || clause.Params["v"] == "v1beta1")
		f.version = metav1.GroupName + "/" + clause.Params["v"]
		switch {
		case !known:
		case as == asTable:
			f.as, f.drop = asTable, object.Prune{}
			f.include = metav1.IncludeObjectPolicy(r.query.Get("includeObject"))
			return f, nil
		case as == asPartial && r.verb != verbList, as == asPartial+"List" && r.verb == verbList:
			f.as, f.drop = asPartial, object.Prune{}
			return f, nil
		}
	}
	return f, status.NotAcceptable(asked)
}

// maxDrops limits the paths that are left out for a client. It drops the others itself, and any that
// are not the paths of fields.
const maxDrops = 32

// dropFor returns the fields that a client drops, as far as the collection has them.
func (s *served) dropFor(r *request) object.Prune {
	paths := r.Header.Values(object.DropHeader)
	if len(paths) == 0 {
		return object.Prune{}
	}
	paths = slices.DeleteFunc(slices.Clone(paths[:min(len(paths), maxDrops)]), func(path string) bool {
		return !object.IsPath(path) || slices.Contains(s.dropped, path)
	})
	return object.NewPrune(paths...)
}

// check returns an error if a table can't include the requested part of objects. A kube-apiserver finds that out after
// all other faults of a request.
func (f form) check() error {
	if f.as != asTable {
		return nil
	}
	switch f.include {
	case "", metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
		return nil
	}
	return badRequest(fmt.Sprintf(
		"Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", f.include))
}

// send answers with JSON.
func send(w http.ResponseWriter, body []byte) error { return sendAs(w, http.StatusOK, body) }

// sendAs answers with a code and JSON.
func sendAs(w http.ResponseWriter, code int, body []byte) error {
	h := w.Header()
	setJSON(h)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, err := w.Write(body)
	return err
}

// setJSON sets the headers of an answer that is JSON.
func setJSON(h http.Header) {
	h.Set("Cache-Control", "no-cache, private")
	h.Set("Content-Type", "application/json")
}
