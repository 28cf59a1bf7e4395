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

// Watch starts a watch from rv, which the server ends after timeout (rounded
// down to seconds, at least one). Bookmarks are on. An rv of "" or "0" begins with
// synthetic ADDED events for what there is; see the API's documentation.
//
// Event objects are:
//
//   - *[object.Object] with ADDED, MODIFIED and DELETED, pruned; and with BOOKMARK,
//     where all there is to rely on is the resourceVersion
//   - *[metav1.Status] with ERROR: as the server sent it; with
//     [ReasonConnectionLost] where the connection broke; with code 500 where the
//     stream is not one of watch events
//   - *[Unusable] with any type: to be reported and passed over
//
// After an ERROR event, or without one where the server closed the stream in good
// order or ctx is done, the channel is closed. The caller must call Stop in any
// case; when it returns, all that the watch had running has ended.
//
// No request is made a second time. rest.Request.Watch by itself would hide a
// connection that ends before the answer (EOF, reset, timeout): it returns a
// watch that is closed already and no error, as if the server had nothing to
// say. That is an error here. A connection that is refused, and any answer but
// 200, is an error there as well.
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
		// Where the answer is no JSON, rest leaves its body open: this closes it.
		cancel()
		return nil, fmt.Errorf("watch %s: %w", s, s.scoped(err))
	}
	if _, ok := w.(*watch.StreamWatcher); !ok {
		cancel()
		if *failure == nil {
			*failure = io.ErrUnexpectedEOF
		}
		// As net/http would have it.
		return nil, fmt.Errorf("watch %s: %w", s, &url.Error{Op: "Get", URL: r.URL().Redacted(), Err: *failure})
	}
	return &watcher{w, cancel}, nil
}

// watcher waits in Stop for the goroutine that reads the stream.
type watcher struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop implements [watch.Interface].
func (w *watcher) Stop() {
	w.cancel()
	w.Interface.Stop()
	for range w.ResultChan() {
	}
}
