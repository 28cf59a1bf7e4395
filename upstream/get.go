package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

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
	case !validJSON(raw):
		return nil, object.ErrInvalid
	}
	return raw, nil
}

// getSelected lists the one object, because only the server can evaluate a selector.
func (s *Source) getSelected(ctx context.Context, namespace, name string) (found *object.Object, err error) {
	narrow := s.only(namespace, name)
	var unusable error // set if the object exists, but can't be used
	narrow.opts.OnSkip = func(err error) { unusable = err }
	_, err = narrow.List(ctx, ListOptions{}, func(o *object.Object) error { found = o; return nil })
	switch {
	case err != nil:
		return nil, err
	case unusable != nil:
		return nil, unusable
	case found == nil:
		return nil, ErrNoObject
	}
	return found, nil
}

// Version returns the UID and resourceVersion of the newest state of the object at key. Errors are
// those of Get. It needs no permission but list.
func (s *Source) Version(ctx context.Context, key string) (uid, rv string, err error) {
	uid, rv, _, err = s.version(ctx, key, "")
	if err != nil {
		return "", "", fmt.Errorf("look up %s of %s: %w", key, s, s.scoped(err))
	}
	return uid, rv, nil
}

// VersionAt is [Source.Version] for the state at resourceVersion at, which the server can answer
// for some minutes (410 afterwards). then is true if the result, or [ErrNoObject], is of that
// state: a server that does not support exact reads answers with its newest state.
func (s *Source) VersionAt(ctx context.Context, key, at string) (uid, rv string, then bool, err error) {
	uid, rv, of, err := s.version(ctx, key, at)
	then = at != "" && of == at
	if err != nil {
		return "", "", then, fmt.Errorf("look up %s of %s at %s: %w", key, s, at, s.scoped(err))
	}
	return uid, rv, then, nil
}

// Current is the server's state of a key.
type Current struct {
	// Exists reports whether there is an object in the source's scope. UID and RV are the object's.
	Exists  bool
	UID, RV string

	// At is a resourceVersion at which the server had this state.
	At string
}

// Current returns the server's newest state of key, from metadata only. A missing object is not an
// error.
func (s *Source) Current(ctx context.Context, key string) (Current, error) {
	uid, rv, of, err := s.version(ctx, key, "")
	switch {
	case err == nil && rv != "":
		return Current{Exists: true, UID: uid, RV: rv, At: rv}, nil
	case errors.Is(err, ErrNoObject) && of != "":
		return Current{At: of}, nil
	case err == nil || errors.Is(err, ErrNoObject):
		err = fmt.Errorf("%w: it has no resourceVersion", ErrBadList)
	}
	return Current{}, fmt.Errorf("look up %s of %s: %w", key, s, s.scoped(err))
}

// version returns the object's UID and resourceVersion. of is the resourceVersion of the state that
// the server read, empty if the server does not send it. at selects the state, empty for the
// newest.
func (s *Source) version(ctx context.Context, key, at string) (uid, rv, of string, err error) {
	namespace, name := split(key)
	if s.opts.Namespace != "" && s.opts.Namespace != namespace {
		return "", "", "", ErrNoObject
	}
	raw, err := s.only(namespace, name).first(ctx, at)
	if err != nil {
		return "", "", "", err
	}
	items := gjson.GetBytes(raw, "items")
	if !items.Exists() {
		return "", "", "", ErrBadList
	}
	of = gjson.GetBytes(raw, "metadata.resourceVersion").Str
	if !items.Get("0").Exists() {
		return "", "", of, ErrNoObject
	}
	found := items.Get("0.metadata")
	if at := object.Key(found.Get("namespace").Str, found.Get("name").Str); at != key {
		return "", "", "", fmt.Errorf("the server sent %s", at) // the server does not support the selector
	}
	return found.Get("uid").Str, found.Get("resourceVersion").Str, of, nil
}

// first returns a list of the first object in scope, metadata only, at resourceVersion at. If at is
// empty, the list is a consistent read of the newest state, not one from the server's cache.
func (s *Source) first(ctx context.Context, at string) (list []byte, err error) {
	r, err := s.request()
	if err != nil {
		return nil, err
	}
	if at != "" {
		r.Param("resourceVersion", at).Param("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	}
	return readJSON(r.SetHeader("Accept", acceptMetadataList).SetHeader("Accept-Encoding", "gzip").Param("limit", "1").Stream(ctx))
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
