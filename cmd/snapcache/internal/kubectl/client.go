package kubectl

import (
	"context"
	"errors"
	"io"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

const (
	// pageLimit is how many objects are requested at once.
	pageLimit = 500

	acceptJSON  = runtime.ContentTypeJSON
	acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)

// client requests from a server, and prints the answers.
type client struct {
	rest        rest.Interface
	accept      string // of objects
	opts        Options
	out, errOut io.Writer
}

func newClient(cfg *rest.Config, o Options, out, errOut io.Writer) (*client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // the Status of an error
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // no limit
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.WarningHandlerWithContext, cfg.WarningHandler = nil, rest.NewWarningWriter(errOut, rest.WarningWriterOptions{Deduplicate: true})
	r, err := rest.UnversionedRESTClientFor(cfg)
	c := &client{rest: r, accept: acceptJSON, opts: o, out: out, errOut: errOut}
	if o.isTable() {
		c.accept = acceptTable
	}
	return c, err
}

func (c *client) request(r *resource) *rest.Request {
	q := c.rest.Get().AbsPath(r.root()).NamespaceIfScoped(c.opts.namespace(), r.namespaced).Resource(r.Resource).SetHeader("Accept", c.accept)
	if c.opts.isTable() && c.opts.SortBy != "" {
		q.Param("includeObject", "Object")
	}
	return q
}

// get returns one object, or a Table of it; nil for one that is missing and may be. For an object that
// is missing with its namespace, the error is about the namespace.
func (c *client) get(ctx context.Context, t target) ([]byte, error) {
	raw, err := do(ctx, c.request(t.resource).Name(t.object))
	if c.opts.IgnoreNotFound && apierrors.IsNotFound(err) {
		return nil, nil
	}
	if namespace := c.opts.namespace(); apierrors.IsNotFound(err) && t.namespaced && namespace != metav1.NamespaceDefault {
		nsErr := c.rest.Get().AbsPath("/api/v1/namespaces", namespace).SetHeader("Accept", acceptJSON).Do(ctx).Error()
		status, ok := errors.AsType[*apierrors.StatusError](nsErr)
		if ok && apierrors.IsNotFound(nsErr) && status.ErrStatus.Details != nil && status.ErrStatus.Details.Name == namespace {
			return nil, nsErr
		}
	}
	return raw, err
}

// do returns the body of an answer, or the Status of an error.
func do(ctx context.Context, q *rest.Request) ([]byte, error) {
	result := q.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// list calls each for the objects of a resource, or for the rows of their Table. After the first
// call an error means that the list is not complete.
func (c *client) list(ctx context.Context, r *resource, each func(item) error) (meta metav1.ListMeta, err error) {
	for {
		q := c.selecting(c.request(r))
		if c.opts.SortBy == "" {
			q.Param("limit", strconv.Itoa(pageLimit))
		}
		if meta.Continue != "" {
			q.Param("continue", meta.Continue)
		}
		body, err := q.Stream(ctx)
		if err == nil {
			meta, err = readList(body, r, each)
			_ = body.Close() // it was read, or there is another error
		}
		if err != nil {
			return meta, listError(err, r, c.opts)
		}
		if meta.Continue == "" {
			return meta, nil
		}
	}
}

func (c *client) selecting(q *rest.Request) *rest.Request {
	return q.Param("labelSelector", c.opts.LabelSelector).Param("fieldSelector", c.opts.FieldSelector)
}
