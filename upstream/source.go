package upstream

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

// SourceOptions say what to list and watch.
type SourceOptions struct {
	// Resource is what [Cluster.Resolve] returned. Objects of another type are
	// skipped.
	Resource Resource

	// Namespace limits the source to one namespace; empty for all.
	Namespace string

	LabelSelector string
	FieldSelector string

	// Prune is applied to each object on its way in.
	Prune object.Prune

	// OnSkip is told of each item of a list that can't be used; nil for nobody. It
	// is called from within [Source.List].
	OnSkip func(error)
}

// Source lists and watches the objects of one resource in one scope. It is safe
// for concurrent use.
type Source struct {
	opts   SourceOptions
	dec    decoding
	meter  *meter
	client *rest.RESTClient
	err    error // why there is no client
}

// Source returns the source of what opts name, without talking to the server.
func (c *Cluster) Source(opts SourceOptions) *Source {
	s := &Source{
		opts:  opts,
		meter: &meter{next: c.transport},
		dec:   decoding{resource: opts.Resource, prune: opts.Prune},
	}
	// A client of its own, because the decoder depends on the source. Connections
	// are the cluster's.
	s.client, s.err = c.restClient(opts.Resource.GVR.GroupVersion(), s.meter, s.dec)
	return s
}

// BytesReceived is the number of bytes of bodies that came from the server since
// the source was made, as they came over the network: compressed for lists.
// Headers and TLS are not in it.
func (s *Source) BytesReceived() int64 { return s.meter.bytes.Load() }

// String returns the resource and its scope: "deployments.apps", "pods in
// namespace shop".
func (s *Source) String() string {
	name := s.opts.Resource.GVR.GroupResource().String()
	if s.opts.Namespace != "" {
		name += " in namespace " + s.opts.Namespace
	}
	return name
}

// request is a GET of the resource in the source's scope. Nothing is retried: the
// reflector has one backoff for everything, and says what it waits for.
func (s *Source) request() (*rest.Request, error) {
	if s.err != nil {
		return nil, s.err
	}
	r := s.client.Get().
		NamespaceIfScoped(s.opts.Namespace, s.opts.Namespace != "").
		Resource(s.opts.Resource.GVR.Resource).
		MaxRetries(0)
	if s.opts.LabelSelector != "" {
		r.Param("labelSelector", s.opts.LabelSelector)
	}
	if s.opts.FieldSelector != "" {
		r.Param("fieldSelector", s.opts.FieldSelector)
	}
	return r, nil
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

// probeBody is how much of a probe's answer is read so that the connection can be
// used again, in bytes. The answer is one object's metadata; a server that does
// not know the limit parameter must not make a probe into a list.
const probeBody = 64 << 10

// Probe asks whether the server is at or past rv: nil says yes. An error that
// wraps [ErrLags] says that it will be; one that wraps [ErrAhead] that it is behind,
// which may pass where it is one of several; every other error is as the request made
// it.
//
// It lists one object's metadata with resourceVersionMatch=NotOlderThan, which a
// server that is behind refuses after some seconds of waiting. A watch from such
// an rv would be accepted and stay silent. What refuses is the server's cache; where
// the cluster is, a list without a resourceVersion tells. Contract:
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
			err = s.behind(ctx, rv, err)
		}
		return fmt.Errorf("probe %s: %w", s, s.scoped(err))
	}
	defer body.Close()
	// The answer is in the status; what the body says does not matter, and neither
	// does an error in reading it.
	_, _ = io.CopyN(io.Discard, body, probeBody)
	return nil
}

// behind returns what a refusal of rv means.
func (s *Source) behind(ctx context.Context, rv string, refused error) error {
	raw, err := s.first(ctx, "")
	if err != nil {
		return err
	}
	return behind(rv, gjson.GetBytes(raw, "metadata.resourceVersion").String(), refused)
}

// behind returns what it means that a server refuses rv because it has not reached it,
// where its newest state is at newest: [ErrLags], or [ErrAhead] where that is before
// rv or can't be compared.
func behind(rv, newest string, refused error) error {
	if cmp, ok := object.CompareRV(newest, rv); ok && cmp >= 0 {
		return fmt.Errorf("%w, which is at %s: %w", ErrLags, newest, refused)
	}
	return fmt.Errorf("%w: %w", ErrAhead, refused)
}

// isAhead reports whether the server says that a resourceVersion is ahead of it.
// Servers before 1.17 say so in the message only.
func isAhead(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		apierrors.IsTimeout(err) && strings.Contains(err.Error(), "Too large resource version")
}
