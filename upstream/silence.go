package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// answerLimit is how long a server may send nothing of an answer that is waited for: half again as long
// as a kube-apiserver works on a request, which is 60 s. The health checks of HTTP/2 don't find a proxy
// that keeps the connection alive and passes nothing on.
const answerLimit = 90 * time.Second

// errUnanswered is the error of a request that was given up. It counts as a timeout.
var errUnanswered = fmt.Errorf("%w: the server sent nothing for %s", context.DeadlineExceeded, answerLimit)

// impatient is a transport that gives up requests whose server sends nothing for answerLimit: no header,
// or no more of the body while that is read. A watch is silent while nothing changes, so only its
// header is waited for; its end is the caller's business. The link hears everything that comes.
type impatient struct {
	next http.RoundTripper
	link *Link
}

// WrappedRoundTripper returns the inner transport, for apimachinery.
func (i impatient) WrappedRoundTripper() http.RoundTripper { return i.next }

// RoundTrip implements [http.RoundTripper].
func (i impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(answerLimit, func() { cancel(errUnanswered) })
	resp, err := i.next.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		err = unansweredOr(ctx, err)
		cancel(nil)
		return nil, err
	}
	i.link.hear()
	body := &heardBody{ReadCloser: resp.Body, link: i.link, ctx: ctx, cancel: cancel}
	if r.URL.Query().Get("watch") != "true" {
		body.timer = timer
	}
	resp.Body = body
	return resp, nil
}

// unansweredOr returns errUnanswered if the request of ctx was given up, else err.
func unansweredOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause == errUnanswered { //nolint:errorlint // the very error
		return cause
	}
	return err
}

// heardBody is the body of an answer. Only the time of a Read counts: the reader may be slow.
type heardBody struct {
	io.ReadCloser
	link   *Link
	ctx    context.Context //nolint:containedctx // the request's
	cancel context.CancelCauseFunc
	timer  *time.Timer // nil for a watch
}

func (b *heardBody) Read(p []byte) (int, error) {
	if b.timer != nil {
		b.timer.Reset(answerLimit)
		defer b.timer.Stop()
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.link.hear()
	}
	if err != nil && err != io.EOF { //nolint:errorlint // a reader returns it as it is
		err = unansweredOr(b.ctx, err)
	}
	return n, err
}

// Close implements [io.Closer].
func (b *heardBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
