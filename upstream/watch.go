package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Watch starts a watch from rv, which the server ends after timeout (rounded down to seconds, at
// least one). Bookmarks are on. If rv is "" or "0", the watch begins with synthetic ADDED events
// for the existing objects; see the API's documentation.
//
// Event objects are:
//
//   - *[object.Object] with ADDED, MODIFIED and DELETED, pruned; with BOOKMARK,
//     only the resourceVersion is set reliably
//   - *[metav1.Status] with ERROR: as the server sent it; with
//     [ReasonConnectionLost] if the connection broke; with code 500 if the
//     stream is not one of watch events
//   - *[InvalidObject] with any type: report and skip it
//
// The channel is closed after an ERROR event, or without one if the server closed the stream
// normally or ctx is done. The caller must call Stop in any case. When Stop returns, the goroutines
// of the watch have ended.
//
// Nothing is retried. Watch returns an error if there is no answer, or one that is not of events.
func (s *Source) Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	body, mediaType, err := s.stream(ctx, func() (*rest.Request, error) { return s.watchRequest(rv, timeout) })
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch %s: %w", s, s.scoped(err))
	}
	w := &serverWatch{events: make(chan watch.Event), cancel: cancel}
	var frames frameReader
	switch mediaType {
	case runtime.ContentTypeJSON, "":
		frames = newLines(body)
	case runtime.ContentTypeProtobuf:
		frames = newMessages(body)
	default:
		cancel()
		_ = body.Close()
		return nil, fmt.Errorf("watch %s: the server answered with %s instead of events", s, mediaType)
	}
	go w.run(ctx, body, &eventReader{frames: frames, dec: s.dec})
	return w, nil
}

func (s *Source) watchRequest(rv string, timeout time.Duration) (*rest.Request, error) {
	r, err := s.request()
	if err != nil {
		return nil, err
	}
	r.Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.FormatInt(max(1, int64(timeout/time.Second)), 10)).
		// A kube-apiserver does not compress a watch, an agent does for clients that know zstd.
		SetHeader("Accept-Encoding", acceptEncodings)
	if rv != "" {
		r.Param("resourceVersion", rv)
	}
	return r, nil
}

// serverWatch is a watch of the server. A goroutine reads the stream.
type serverWatch struct {
	events chan watch.Event
	cancel context.CancelFunc
}

func (w *serverWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements [watch.Interface]. It waits for the goroutine that reads the stream.
func (w *serverWatch) Stop() {
	w.cancel()
	for range w.events {
	}
}

func (w *serverWatch) run(ctx context.Context, body io.Closer, r *eventReader) {
	defer close(w.events)
	defer w.cancel()
	defer func() { _ = body.Close() }()
	for {
		e, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			e = watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}
		}
		select {
		case <-ctx.Done():
			return
		case w.events <- e:
		}
		if e.Type == watch.Error {
			return
		}
	}
}

// eventReader reads the events of a stream. Only one goroutine may use it.
type eventReader struct {
	frames frameReader
	dec    decoding
	lost   bool // the connection broke
}

// next returns the next event. The error is io.EOF at the normal end of the stream, or why a frame
// is not an event.
func (r *eventReader) next() (watch.Event, error) {
	if r.lost {
		return watch.Event{}, io.EOF
	}
	typ, raw, err := r.frames.next()
	switch {
	case err == nil:
		return watch.Event{Type: typ, Object: r.dec.event(typ, raw)}, nil
	case errors.Is(err, ErrTooDeep):
		return watch.Event{Type: typ, Object: r.dec.deepEvent(raw)}, nil
	case errors.Is(err, ErrTooLarge):
		return watch.Event{Type: watch.Modified, Object: &InvalidObject{Err: ErrTooLarge}}, nil
	case errors.Is(err, errNoEvent), errors.Is(err, io.EOF):
		return watch.Event{}, err
	case errors.Is(err, context.Canceled): // by the caller
		return watch.Event{}, io.EOF
	}
	r.lost = true
	return watch.Event{Type: watch.Error, Object: &metav1.Status{
		Status: metav1.StatusFailure, Reason: ReasonConnectionLost,
		Message: "the connection broke during a watch: " + oneLine(err.Error()),
	}}, nil
}
