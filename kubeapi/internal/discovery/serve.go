package discovery

import (
	"net/http"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// aggregatedType is the media type of aggregated documents, as a kube-apiserver sends it.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// aggregatedKind is the kind of an aggregated document, which a client requests in its media type.
var aggregatedKind = schema.GroupVersionKind{Group: "apidiscovery.k8s.io", Version: "v2", Kind: "APIGroupDiscoveryList"}

// Serve answers a GET of a document, indented if pretty is set. If there is no document at the
// path of the request, such as the path of an unknown group, Serve returns false and writes nothing.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request, pretty bool) (ok bool) {
	doc, ok := d.byPath[strings.TrimSuffix(r.URL.Path, "/")]
	if !ok {
		return false
	}
	body := doc.legacy
	if body == nil {
		body = apiVersions(r.Host)
	}
	if pretty {
		body = status.Indented(body)
	}
	legacy, aggregated, anyJSON := accepts(r.Header.Get("Accept"))
	h := w.Header()
	h.Set("Cache-Control", "no-cache, private")
	h.Set("Content-Type", runtime.ContentTypeJSON)
	switch {
	case aggregated && doc.aggregated != nil:
		doc.serveAggregated(w, r)
	case !legacy:
		status.Send(w, status.Of(status.NotAcceptable(anyJSON)), true)
	default:
		_, _ = w.Write(body)
	}
	return true
}

func (doc document) serveAggregated(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "public")
	h.Set("ETag", doc.etag)
	h.Set("Vary", "Accept")
	if r.Header.Get("If-None-Match") == doc.etag {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", aggregatedType)
	_, _ = w.Write(doc.aggregated)
}

// accepts reports which documents a client accepts, and whether it accepts JSON of any kind. The order and weight of the clauses do not
// matter: if a path has an aggregated document, a kube-apiserver sends it to every client that
// accepts it.
func accepts(header string) (legacy, aggregated, anyJSON bool) {
	if header == "" {
		return true, false, true
	}
	for _, clause := range goautoneg.ParseAccept(header) {
		if !status.IsJSON(clause) {
			continue
		}
		anyJSON = true
		switch (schema.GroupVersionKind{Group: clause.Params["g"], Version: clause.Params["v"], Kind: clause.Params["as"]}) {
		case schema.GroupVersionKind{}:
			legacy = true
		case aggregatedKind:
			aggregated = true
		}
	}
	return legacy, aggregated, anyJSON
}

// apiVersions returns the document of /api for a client that reached the server at address.
func apiVersions(address string) []byte {
	return encode(metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, // no version, as in Kubernetes 1.1
		Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: address},
		},
	})
}
