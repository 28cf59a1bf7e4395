package upstream

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

// SourceOptions select what to list and watch.
type SourceOptions struct {
	// Resource is a result of [Cluster.Resolve]. Objects of another type are skipped.
	Resource Resource

	// Namespace limits the source to one namespace; empty for all.
	Namespace string

	LabelSelector string
	FieldSelector string

	// Prune is applied to each object that is received. For protobuf it has to be a result of
	// [object.Prune.For].
	Prune object.Prune

	// Protobuf asks the server for protobuf, and delivers objects in that form, see
	// [object.Object.Protobuf]. Kind must be set in Resource. A server that does not have the form,
	// such as for custom resources, sends JSON.
	Protobuf bool
}

// Source lists and watches the objects of one resource in one scope. It is safe for concurrent use.
type Source struct {
	cluster *Cluster
	opts    SourceOptions
	dec     decoding
	meter   *meter
	client  *rest.RESTClient
	err     error        // why there is no client
	plain   *atomic.Bool // the server was found not to accept a request for protobuf
	seed    *seed        // where the first list comes from; nil for the server in use
	retry   int          // how often a request is repeated if the server names the time to wait (429, 503)
}

// Link returns the link to the server, which all sources of a cluster share.
func (s *Source) Link() *Link { return s.cluster.link }

// Source returns the source for opts. It sends no request.
func (c *Cluster) Source(opts SourceOptions) *Source {
	s := &Source{
		cluster: c, opts: opts,
		meter: &meter{next: c.transport},
		dec:   decoding{resource: opts.Resource, prune: opts.Prune},
		plain: &atomic.Bool{},
		seed:  c.newSeed(opts),
	}
	// The client is the source's own, because its meter is. Connections belong to the cluster.
	s.client, s.err = c.restClient(opts.Resource.GVR.GroupVersion(), s.meter, opts.Protobuf)
	return s
}

// BytesReceived returns the size of the bodies received from the server, and from the seed, since the source was made,
// in bytes as transferred: compressed for lists. Headers and TLS are not counted.
func (s *Source) BytesReceived() int64 {
	received := s.meter.bytes.Load()
	if s.seed != nil {
		received += s.seed.source.BytesReceived()
	}
	return received
}

// String returns the resource and its scope: "deployments.apps", "pods in
// namespace shop".
func (s *Source) String() string {
	name := s.opts.Resource.GVR.GroupResource().String()
	if s.opts.Namespace != "" {
		name += " in namespace " + s.opts.Namespace
	}
	return name
}

// request returns a GET of the resource in the source's scope. Unless it is for a seed, it does not
// retry: the reflector has the only backoff, and reports its cause.
func (s *Source) request() (*rest.Request, error) {
	if s.err != nil {
		return nil, s.err
	}
	r := s.client.Get().
		NamespaceIfScoped(s.opts.Namespace, s.opts.Namespace != "").
		Resource(s.opts.Resource.GVR.Resource).
		MaxRetries(s.retry)
	if s.plain.Load() {
		r.SetHeader("Accept", runtime.ContentTypeJSON)
	}
	if !s.opts.Prune.None() {
		r.SetHeader(object.DropHeader, s.opts.Prune.Paths()...)
	}
	if s.opts.LabelSelector != "" {
		r.Param("labelSelector", s.opts.LabelSelector)
	}
	if s.opts.FieldSelector != "" {
		r.Param("fieldSelector", s.opts.FieldSelector)
	}
	return r, nil
}

// stream sends the request that build returns. If the server does not accept a request for protobuf
// (406), although JSON would do too, stream sends another one for JSON, and so do later calls.
func (s *Source) stream(ctx context.Context, build func() (*rest.Request, error)) (body io.ReadCloser, mediaType string, err error) {
	asked := s.opts.Protobuf && !s.plain.Load()
	r, err := build()
	if err != nil {
		return nil, "", err
	}
	with, headers := withAnswer(ctx)
	body, err = r.Stream(with)
	if asked && apierrors.IsNotAcceptable(err) {
		s.plain.Store(true)
		return s.stream(ctx, build)
	}
	return body, headers.mediaType, err
}

// scoped returns an error of a request with the namespace of the source, if it has one.
func (s *Source) scoped(err error) error {
	if s.opts.Namespace == "" {
		return err
	}
	return scopedError{s.opts.Namespace, err}
}

// acceptMetadataList is [acceptMetadata] for lists.
const acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// probeBody is how much of a probe's answer is read so that the connection can be reused, in bytes.
// The answer is one object's metadata. If a server ignores the limit parameter, the probe must not
// become a list.
const probeBody = 64 << 10

// Probe returns nil if the server is at or past rv. An error that wraps [ErrLags] means that the
// server will reach rv. One that wraps [ErrAhead] means that the newest state is before rv, which
// may pass if this is one server of several. Every other error is the request's.
//
// Probe lists one object's metadata with resourceVersionMatch=NotOlderThan, which a server that is
// behind refuses after waiting some seconds. A watch from such an rv would be accepted and stay
// silent. The refusal comes from the server's cache; a list without a resourceVersion then shows
// the state of the cluster. Contract:
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
func (s *Source) Probe(ctx context.Context, rv string) error {
	r, err := s.request()
	if err != nil {
		return err
	}
	body, err := r.SetHeader("Accept", acceptMetadataList).
		SetHeader("Accept-Encoding", "gzip").
		Param("limit", "1").
		Param("resourceVersion", rv).
		Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan)).
		Stream(ctx)
	if err != nil {
		if isAhead(err) {
			if raw, newest := s.first(ctx, ""); newest != nil {
				err = newest
			} else {
				err = behind(rv, gjson.GetBytes(raw, "metadata.resourceVersion").String(), err)
			}
		}
		return fmt.Errorf("probe %s: %w", s, s.scoped(err))
	}
	defer body.Close()
	// Only the status matters, not the body or an error in reading it.
	_, _ = io.CopyN(io.Discard, body, probeBody)
	return nil
}

// behind returns the error for a server that refused rv because it has not reached it: [ErrLags] if
// newest, the cluster's newest state, is at or past rv; [ErrAhead] if it is before rv or can't be
// compared.
func behind(rv, newest string, refused error) error {
	if cmp, ok := object.CompareRV(newest, rv); ok && cmp >= 0 {
		return fmt.Errorf("%w, which is at %s: %w", ErrLags, newest, refused)
	}
	return fmt.Errorf("%w: %w", ErrAhead, refused)
}

// isAhead reports whether the server refused a resourceVersion because it has not reached it.
// Before Kubernetes 1.17 only the message shows that.
func isAhead(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		apierrors.IsTimeout(err) && strings.Contains(err.Error(), "Too large resource version")
}
