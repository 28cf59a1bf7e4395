package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

// Get returns the newest state of the object at key (namespace/name), pruned as in a list.
// [ErrNoObject] means that the server has no such object, or that the object does not match the
// source's selectors. No other error proves that the object is gone: a server also answers 404 if
// it does not have the resource at the moment.
func (s *Source) Get(ctx context.Context, key string) (*object.Object, error) {
	o, err := s.get(ctx, key)
	if err == nil && o.Key() != key {
		err = fmt.Errorf("the server sent %s", o.Key())
	}
	if err != nil {
		return nil, fmt.Errorf("get %s of %s: %w", key, s, s.scoped(err))
	}
	return o, nil
}

func (s *Source) get(ctx context.Context, key string) (*object.Object, error) {
	namespace, name := split(key)
	switch {
	case s.err != nil:
		return nil, s.err
	case s.opts.Namespace != "" && s.opts.Namespace != namespace:
		return nil, ErrNoObject
	case s.opts.LabelSelector != "" || s.opts.FieldSelector != "":
		return s.getSelected(ctx, namespace, name)
	}
	body, err := s.client.Get().
		NamespaceIfScoped(namespace, namespace != "").
		Resource(s.opts.Resource.GVR.Resource).
		Name(name).
		SetHeader("Accept", runtime.ContentTypeJSON).
		SetHeader("Accept-Encoding", "gzip").
		MaxRetries(0).
		Stream(ctx)
	if isGone(err) {
		return nil, ErrNoObject
	}
	raw, err := readJSON(body, err)
	if err != nil {
		return nil, err
	}
	o, _, err := s.dec.item(raw)
	return o, err
}

// readJSON reads the body of an answer, which is one JSON value, and closes it. It returns err if
// err is set.
func readJSON(body io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, maxObject+1))
	switch {
	case err != nil:
		return nil, err
	case len(raw) > maxObject:
		return nil, ErrTooLarge
	case validJSON(raw):
		return raw, nil
	case tooDeep(raw):
		return nil, ErrTooDeep
	}
	return nil, object.ErrInvalid
}

// getSelected lists the one object, because only the server can evaluate a selector.
func (s *Source) getSelected(ctx context.Context, namespace, name string) (*object.Object, error) {
	var got single
	_, err := s.only(namespace, name).List(ctx, got.options(), got.add)
	return got.result(err)
}

// single receives a list of one object.
type single struct {
	found    *object.Object
	items    int
	unusable error // set if the object exists, but can't be used
}

func (g *single) options() ListOptions {
	return ListOptions{Invalid: func(_ string, err error) { g.unusable = err }}
}

func (g *single) add(o *object.Object) error {
	g.found = o
	g.items++
	return nil
}

// result returns the object, err if the list has failed, or [ErrNoObject].
func (g *single) result(err error) (*object.Object, error) {
	switch {
	case err != nil:
		return nil, err
	case g.unusable != nil:
		return nil, g.unusable
	case g.found == nil:
		return nil, ErrNoObject
	}
	return g.found, nil
}

// GetAt returns the object at key as it was in the state of the resourceVersion rv, pruned as in a list.
// [ErrNoObject] means that it was not in the source's scope. A server that has compacted that state
// returns a 410, and one that does not return past states causes [ErrBadList].
func (s *Source) GetAt(ctx context.Context, key, rv string) (*object.Object, error) {
	o, err := s.getAt(ctx, key, rv)
	if err != nil {
		return nil, fmt.Errorf("get %s of %s at %s: %w", key, s, rv, s.scoped(err))
	}
	return o, nil
}

func (s *Source) getAt(ctx context.Context, key, rv string) (*object.Object, error) {
	namespace, name := split(key)
	narrow := s.only(namespace, name)
	body, mediaType, err := narrow.stream(ctx, func() (*rest.Request, error) {
		r, err := narrow.pageRequest(0, "")
		if err != nil {
			return nil, err
		}
		return r.Param("resourceVersion", rv).Param("resourceVersionMatch", string(metav1.ResourceVersionMatchExact)), nil
	})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var got single
	l := &lister{s: narrow, opts: got.options(), each: got.add}
	p, err := l.read(body, mediaType, func(string) {})
	switch o, err := got.result(err); {
	case err != nil && !errors.Is(err, ErrNoObject):
		return nil, err
	case p.rv != rv:
		return nil, fmt.Errorf("%w: it is of %s", ErrBadList, p.rv)
	case err != nil:
		return nil, err
	case got.items > 1, o.Key() != key:
		return nil, fmt.Errorf("%w: the server sent %s", ErrBadList, o.Key()) // it does not support the selector
	default:
		return o, nil
	}
}

// Current is the server's state of a key.
type Current struct {
	// Exists reports whether there is an object in the source's scope. UID and RV are the object's.
	Exists  bool
	UID, RV string

	// At is a resourceVersion at which the server had this state. ListRV is the whole answer's:
	// the server has not shown anything that is newer.
	At, ListRV string
}

// Current returns the server's state of key at the resourceVersion at, or the newest if at is
// empty, from metadata only. A missing object is not an error. The server can answer for a past
// state for some minutes (410 afterwards); one that does not support exact reads answers with its
// newest state, and At differs from at. It needs no permission but list.
func (s *Source) Current(ctx context.Context, key, at string) (Current, error) {
	found, err := s.current(ctx, key, at)
	if err != nil {
		return Current{}, fmt.Errorf("look up %s of %s: %w", key, s, s.scoped(err))
	}
	return found, nil
}

func (s *Source) current(ctx context.Context, key, at string) (Current, error) {
	namespace, name := split(key)
	if s.opts.Namespace != "" && s.opts.Namespace != namespace {
		return Current{}, ErrNoObject
	}
	raw, err := s.only(namespace, name).first(ctx, at)
	if err != nil {
		return Current{}, err
	}
	list := gjson.GetManyBytes(raw, "items", "metadata.resourceVersion", "items.0")
	if !list[0].Exists() {
		return Current{}, ErrBadList
	}
	found := Current{At: list[1].Str, ListRV: list[1].Str}
	if item := list[2]; item.Exists() {
		if sent := object.Key(item.Get("metadata.namespace").Str, item.Get("metadata.name").Str); sent != key {
			return Current{}, fmt.Errorf("the server sent %s", sent) // it does not support the selector
		}
		found.Exists, found.UID, found.RV = true, item.Get("metadata.uid").Str, item.Get("metadata.resourceVersion").Str
		if at == "" {
			found.At = found.RV
		}
	}
	if found.At == "" {
		return Current{}, fmt.Errorf("%w: it has no resourceVersion", ErrBadList)
	}
	return found, nil
}

// Newest returns the resourceVersion of the newest state. It lists one object's metadata in the
// source's scope, which is a consistent read. The server has made every change that was
// acknowledged before the call at or below that resourceVersion.
func (s *Source) Newest(ctx context.Context) (rv string, err error) {
	raw, err := s.first(ctx, "")
	if err == nil {
		list := gjson.GetManyBytes(raw, "items", "metadata.resourceVersion")
		if rv = list[1].Str; !list[0].Exists() || rv == "" || rv == "0" {
			err = fmt.Errorf("%w: it has no items or no resourceVersion", ErrBadList)
		}
	}
	if err != nil {
		return "", fmt.Errorf("newest resourceVersion of %s: %w", s, s.scoped(err))
	}
	return rv, nil
}

// Follow reads what a cache needs to follow the source's objects: a list with a resourceVersion, and a watch
// from there. A resource may lack either, though its API group names the verbs: the error then wraps
// [ErrBadList], or is the watch's.
func (s *Source) Follow(ctx context.Context) error {
	rv, err := s.Newest(ctx)
	if err != nil {
		return err
	}
	w, err := s.Watch(ctx, rv, time.Second)
	if err != nil {
		return err
	}
	w.Stop()
	return nil
}

// first returns a list of the first object in scope, metadata only, at resourceVersion at. If at is
// empty, the list is a consistent read of the newest state, not one from the server's cache. An agent
// that can't reach its server has no newest state: [ErrCutOff].
func (s *Source) first(ctx context.Context, at string) (list []byte, err error) {
	r, err := s.request()
	if err != nil {
		return nil, err
	}
	if at != "" {
		r.Param("resourceVersion", at).Param("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	}
	ctx, headers := withAnswer(ctx)
	list, err = readJSON(r.SetHeader("Accept", acceptMetadataList).SetHeader("Accept-Encoding", "gzip").Param("limit", "1").Stream(ctx))
	if err == nil && at == "" && headers.isOld() {
		return nil, fmt.Errorf("%w since %s seconds", ErrCutOff, headers.age)
	}
	return list, err
}

// split splits a key. namespace is empty for a cluster-scoped object.
func split(key string) (namespace, name string) {
	if namespace, name, namespaced := strings.Cut(key, "/"); namespaced {
		return namespace, name
	}
	return "", key
}

func (s *Source) only(namespace, name string) *Source {
	narrow := *s
	narrow.opts.Namespace, narrow.opts.FieldSelector = namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	if s.opts.FieldSelector != "" {
		narrow.opts.FieldSelector += "," + s.opts.FieldSelector
	}
	return &narrow
}

// isGone reports whether the server has the resource but not the object. A 404 whose Status
// client-go made up itself means that the path was not found, for example because a custom resource
// is not established.
func isGone(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return status.Status().Details.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
