package upstream

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/watch"
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
// Nothing is retried. If a connection ends before the answer (EOF, reset, timeout),
// rest.Request.Watch returns no error and a watch that is closed already, as if there were no
// events; Watch returns an error. If a connection is refused, or the answer is not 200, both return
// an error.
func (s *Source) Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error) {
	r, err := s.request()
	if err != nil {
		return nil, err
	}
	r.Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.FormatInt(max(1, int64(timeout/time.Second)), 10)).
		// The server never compresses a watch; a proxy that does would hold events back.
		SetHeader("Accept-Encoding", "identity")
	if rv != "" {
		r.Param("resourceVersion", rv)
	}
	ctx, cancel := context.WithCancel(ctx)
	ctx, failure := withFailure(ctx)
	w, err := r.Watch(ctx)
	if err != nil {
		// If the answer is not JSON, rest leaves its body open: this closes it.
		cancel()
		return nil, fmt.Errorf("watch %s: %w", s, s.scoped(err))
	}
	if _, ok := w.(*watch.StreamWatcher); !ok {
		cancel()
		if *failure == nil {
			*failure = io.ErrUnexpectedEOF
		}
		// The form of net/http's errors.
		return nil, fmt.Errorf("watch %s: %w", s, &url.Error{Op: "Get", URL: r.URL().Redacted(), Err: *failure})
	}
	return &watcher{w, cancel}, nil
}

// watcher is a watch whose Stop waits for the goroutine that reads the stream.
type watcher struct {
	watch.Interface
	cancel context.CancelFunc
}

func (w *watcher) Stop() {
	w.cancel()
	w.Interface.Stop()
	for range w.ResultChan() {
	}
}
