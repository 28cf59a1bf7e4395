package collection

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// box is a kube-apiserver with the resource pods, behind a proxy that may hold watches. It works with the
// time of a bubble.
type box struct {
	mu      sync.Mutex
	rv      int
	pods    []int                                   // the resourceVersions of the pods, ascending
	changed chan struct{}                           // closed at the next change
	watches int                                     // that were begun
	held    func(n int, timeout time.Duration) bool // whether the nth watch is held; the first is 1
	delay   time.Duration                           // of all that a watch delivers
	refuse  int                                     // the status of the answers to lists; 0 serves them
	expired bool                                    // the next watch is answered with 410
	lost    string                                  // the class of the next request that is never answered, "" for none
	headers bool                                    // that request gets headers
}

// class returns the class of a request.
func class(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case strings.HasSuffix(r.URL.Path, "/namespaces/kube-system"):
		return "identity"
	case !strings.HasSuffix(r.URL.Path, "/pods"):
		return "other"
	case q.Get("watch") == "true":
		return "watch"
	case q.Get("limit") == "1":
		return "probe"
	}
	return "list"
}

// silence is a body that ends with the request.
type silence struct{ ctx context.Context }

func (s silence) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }
func (s silence) Close() error             { return nil }

// lose answers a request with nothing, or with nothing but headers.
func (b *box) lose(r *http.Request) (*http.Response, error) {
	b.lost = ""
	if b.headers {
		return reply(http.StatusOK, silence{r.Context()}), nil
	}
	b.mu.Unlock()
	defer b.mu.Lock()
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func newBox() *box {
	return &box{rv: 10, pods: []int{5}, changed: make(chan struct{}), held: func(int, time.Duration) bool { return false }}
}

// change makes a change of another resource or, if pod is set, a new pod.
func (b *box) change(pod bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rv++; pod {
		b.pods = append(b.pods, b.rv)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// set changes the settings of the box.
func (b *box) set(f func(b *box)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

func podJSON(rv int) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p-%[1]d","namespace":"n","uid":"u-%[1]d",`+
		`"resourceVersion":"%[1]d"}}`, rv)
}

// RoundTrip implements [http.RoundTripper].
func (b *box) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := r.URL.Query()
	switch of := class(r); {
	case of == b.lost:
		return b.lose(r)
	case of == "watch" && b.expired:
		b.expired = false
		return reply(http.StatusGone, io.NopCloser(strings.NewReader("expired"))), nil
	case of == "identity":
		return reply(http.StatusOK, io.NopCloser(strings.NewReader(`{"metadata":{"uid":"1"}}`))), nil
	case of == "other":
		return reply(http.StatusNotFound, io.NopCloser(strings.NewReader("no"))), nil
	case of == "watch":
		seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
		rv, _ := strconv.Atoi(q.Get("resourceVersion"))
		b.watches++
		return b.watch(r.Context(), rv, time.Duration(seconds)*time.Second), nil
	case b.refuse != 0:
		return reply(b.refuse, io.NopCloser(strings.NewReader("conversion webhook failed"))), nil
	}
	var items []string
	for _, rv := range b.pods {
		items = append(items, podJSON(rv))
	}
	body := fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`,
		b.rv, strings.Join(items, ","))
	return reply(http.StatusOK, io.NopCloser(strings.NewReader(body))), nil
}

func reply(code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// watch answers a watch. A kube-apiserver sends a bookmark each minute, and one two seconds before the end.
func (b *box) watch(ctx context.Context, rv int, timeout time.Duration) *http.Response {
	n := b.watches
	from, to := io.Pipe()
	// The proxy's decision is made for each line, so that it can begin to hold a watch that is open. Behind a
	// line that it has held no other passes, since it keeps their order.
	held := false
	holds := func() (_ bool, delay time.Duration) {
		b.mu.Lock()
		defer b.mu.Unlock()
		held = held || b.held(n, timeout)
		return held, b.delay
	}
	write := func(line string) bool {
		held, delay := holds()
		if held {
			return true
		}
		select {
		case <-ctx.Done():
			to.CloseWithError(ctx.Err()) // before the plain Close, which would be an end of the server's
			return false
		case <-time.After(delay):
		}
		_, err := io.WriteString(to, line+"\n")
		return err == nil
	}
	go func() {
		defer to.Close()
		bookmark := time.NewTicker(time.Minute)
		defer bookmark.Stop()
		last, end := time.After(max(0, timeout-2*time.Second)), time.After(timeout)
		for sent := rv; ; {
			b.mu.Lock()
			now, changed, pods := b.rv, b.changed, b.pods
			b.mu.Unlock()
			for _, pod := range pods {
				if pod > sent && !write(`{"type":"ADDED","object":`+podJSON(pod)+`}`) {
					return
				}
			}
			sent = now
			mark := func() bool {
				return write(fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`, now))
			}
			ok := true
			select {
			case <-ctx.Done():
				to.CloseWithError(ctx.Err())
				return
			case <-changed:
			case <-bookmark.C:
				ok = mark()
			case <-last:
				ok = mark()
			case <-end:
				if held, delay := holds(); !held {
					time.Sleep(delay)
					return
				}
			}
			if !ok {
				return
			}
		}
	}()
	context.AfterFunc(ctx, func() { to.CloseWithError(ctx.Err()) })
	return reply(http.StatusOK, from)
}
