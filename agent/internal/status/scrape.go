package status

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"golang.org/x/sync/singleflight"
)

// scrapes serves metrics by next. Requests that come at once share one answer, in each of the few forms
// that there are: making it takes a megabyte, which a client that does not read must not hold.
type scrapes struct {
	next   http.Handler
	making singleflight.Group
}

// ServeHTTP implements http.Handler. Of a request only the form that it accepts counts.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	form := string(expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...))
	ask := &http.Request{Method: http.MethodGet, URL: r.URL, Header: http.Header{"Accept": {form}}}
	if slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(x string) bool { return strings.TrimSpace(x) == "gzip" }) {
		ask.Header.Set("Accept-Encoding", "gzip")
	}
	made, _, _ := s.making.Do(form+ask.Header.Get("Accept-Encoding"), func() (any, error) {
		a := &scraped{header: http.Header{}, code: http.StatusOK}
		s.next.ServeHTTP(a, ask)
		return a, nil
	})
	a := made.(*scraped) //nolint:forcetypeassert // see above
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // a client that is gone needs no answer
}

// scraped is an answer. It is an http.ResponseWriter until it is made.
type scraped struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *scraped) Header() http.Header         { return a.header }
func (a *scraped) WriteHeader(code int)        { a.code = code }
func (a *scraped) Write(p []byte) (int, error) { return a.body.Write(p) }
