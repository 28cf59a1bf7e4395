package kubeapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// get answers with one object.
func (s *Server) get(w http.ResponseWriter, r *http.Request, p path, of []*served) error {
	f, err := negotiate(r, verbGet, of[0])
	if err != nil {
		return err
	}
	if faults := content.IsPathSegmentName(p.name); len(faults) > 0 {
		return badRequest(fmt.Sprintf("Name parameter invalid: %q: %s", p.name, strings.Join(faults, ";")))
	}
	rv, err := parseRV(r.URL.Query().Get("resourceVersion"), verbGet)
	if err != nil {
		return err
	}
	c, raw, err := s.find(w, r, p, of, rv)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	body, end := raw, lineFeed
	if !f.isStored() {
		if body, err = c.formed(raw, f, s.opts.Clock.Now()); err != nil {
			return err
		}
	}
	if f.pretty {
		body, end = indented(body), nil
	}
	send(w, http.StatusOK, body, end)
	return nil
}

// lineFeed ends an answer that is not for people.
var lineFeed = []byte("\n")

// formed returns an object in the form of an answer that is not the object itself.
func (s *served) formed(raw []byte, f form, now time.Time) (body []byte, err error) {
	if f.as != asTable {
		return s.appendItem(nil, raw, f, now)
	}
	if body, err = s.tableHead(f, listMeta{RV: rvOf(raw)}, true); err != nil {
		return nil, err
	}
	if body, err = s.appendItem(body, raw, f, now); err != nil {
		return nil, err
	}
	return append(body, "]}"...), nil
}

// find returns the object that a request names, from the first collection that has it. It does not
// exist only if a collection would have it.
func (s *Server) find(w http.ResponseWriter, r *http.Request, p path, of []*served, rv string) (*served, []byte, error) {
	for _, c := range of {
		if c.info.Namespace != "" && c.info.Namespace != p.namespace {
			continue
		}
		raw, err := s.read(w, r, c, object.Key(p.namespace, p.name), rv)
		switch {
		case err == nil:
			return c, raw, nil
		case !errors.Is(err, store.ErrNotFound):
			return nil, nil, err
		case c.complete(p.namespace):
			return nil, nil, apierrors.NewNotFound(groupResource(c.info), p.name)
		}
	}
	return nil, nil, outOfScope(of)
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, c *served, key, rv string) ([]byte, error) {
	v, err := s.view(r.Context(), w.Header(), c, rv)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	o, err := v.Get(key)
	if err != nil {
		return nil, err
	}
	return o.JSON(), nil
}

// parseRV returns the resourceVersion of a request without leading zeros, or the error of a
// kube-apiserver if it is not a number.
func parseRV(rv string, v verb) (string, error) {
	if rv == "" {
		return "", nil
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return "", invalidRV(rv, err, v)
	}
	return strconv.FormatUint(n, 10), nil
}

// exact reports whether a list has to be answered with the state at exactly its resourceVersion.
func exact(opts *internalversion.ListOptions) bool {
	return opts.ResourceVersionMatch == "Exact" ||
		opts.ResourceVersionMatch == "" && opts.Limit > 0 && opts.Continue == "" && opts.ResourceVersion != "" && opts.ResourceVersion != "0"
}
