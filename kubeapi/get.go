package kubeapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// get answers with one object.
func (s *Server) get(w http.ResponseWriter, r *request, d decision) error {
	f, err := negotiate(r, d.of[0])
	if err != nil {
		return err
	}
	if faults := content.IsPathSegmentName(r.path.name); len(faults) > 0 {
		return badRequest(fmt.Sprintf("Name parameter invalid: %q: %s", r.path.name, strings.Join(faults, ";")))
	}
	rv, err := parseRV(r.query.Get("resourceVersion"), verbGet)
	if err != nil {
		return err
	}
	buf := getBuffer()
	c, err := s.find(w, r, d, rv, buf)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if err := s.hold(r, buf.Cap()); err != nil { // as long as the client takes to read it
		return err
	}
	body := buf.Bytes()
	if !f.isStored() {
		if body, err = c.appendAlone(nil, body, f, true, s.opts.Clock.Now()); err != nil {
			return err
		}
	}
	if f.pretty {
		body = status.Indented(body)
	} else {
		body = append(body, '\n')
	}
	if send(w, body) == nil {
		putBuffer(buf)
	}
	return nil
}

// find reads the object that a request names into buf, from the first collection that has it, which it
// returns. The object does not exist only if a collection would have it.
func (s *Server) find(w http.ResponseWriter, r *request, d decision, rv string, buf *bytes.Buffer) (*served, error) {
	p := r.path
	for _, c := range d.in {
		err := s.read(w, r, c, object.Key(p.namespace, p.name), rv, buf)
		switch {
		case err == nil:
			return c, nil
		case !errors.Is(err, store.ErrNotFound):
			return nil, err
		case c.complete(p.namespace):
			return nil, apierrors.NewNotFound(groupResource(c.info), p.name)
		}
	}
	return nil, outOfScope(d.of)
}

func (s *Server) read(w http.ResponseWriter, r *request, c *served, key, rv string, buf *bytes.Buffer) error {
	v, err := s.view(r.Context(), w.Header(), c, rv)
	if err != nil {
		return err
	}
	defer v.Close()
	raw, err := v.Raw(key, buf.AvailableBuffer())
	if err == nil {
		raw, err = object.JSON(raw) // a file may have protobuf
	}
	if err == nil {
		buf.Write(raw)
	}
	return err
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
