package openapi

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// ServeHTTP answers a GET of the index, or of one document. Like a kube-apiserver it redirects a
// request for a document with another hash to the one that is there.
func (m *Mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache, private")
	if r.URL.Path == root {
		h.Set("Content-Type", runtime.ContentTypeJSON)
		_ = json.NewEncoder(w).Encode(m.index())
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, root+"/")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	h.Set("Vary", "Accept, Accept-Encoding")
	if !status.AcceptsJSON(r.Header.Get("Accept"), false) {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	f, d, err := m.open(path)
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	defer func() { _ = f.Close() }() // it was read
	d.serve(w, r, f, path)
}

// serve answers with the document in f.
func (d document) serve(w http.ResponseWriter, r *http.Request, f *os.File, path string) {
	h, etag := w.Header(), strconv.Quote(d.hash)
	h.Set("Content-Type", runtime.ContentTypeJSON)
	h.Set("ETag", etag)
	if hash := r.URL.Query().Get("hash"); hash == d.hash {
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().UTC().AddDate(1, 0, 0).Format(http.TimeFormat))
	} else if hash != "" {
		http.Redirect(w, r, relativeURL(path, d.hash), http.StatusMovedPermanently)
		return
	}
	if r.Header.Get("If-None-Match") == etag {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		if info, err := f.Stat(); err == nil {
			h.Set("Content-Length", strconv.FormatInt(info.Size(), 10))
		}
		h.Set("Content-Encoding", "gzip")
		_, _ = io.Copy(w, f)
		return
	}
	h.Set("Content-Length", strconv.FormatInt(d.size, 10)) // a body that ends early is then an error
	if zr, err := gzip.NewReader(f); err == nil {
		_, _ = io.Copy(w, zr)
	}
}

// acceptsGzip reports whether a client accepts gzip. As with a kube-apiserver, a weight means that it
// does not.
func acceptsGzip(header string) bool {
	for coding := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(coding) == "gzip" {
			return true
		}
	}
	return false
}
