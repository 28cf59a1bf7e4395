package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

// missedTimeout is the timeout of the watch of [Source.Missed]: the shortest there is.
const missedTimeout = time.Second

// Missed returns the resourceVersion of the first change after rv, "" if there is none. A watch that has
// reached rv has not delivered it. It watches from rv for a second, or until the first event; the
// events have metadata only. A server that ends the watch sooner, or not within the time of ctx, or sends
// an older change, has not answered. A 410 means that there are more changes than the server remembers.
func (s *Source) Missed(ctx context.Context, rv string) (string, error) {
	missed, err := s.missed(ctx, rv)
	if err != nil {
		return "", fmt.Errorf("changes of %s since %s: %w", s, rv, s.scoped(err))
	}
	return missed, nil
}

func (s *Source) missed(ctx context.Context, rv string) (string, error) {
	began := time.Now() // the server's second may begin long before its header arrives
	body, _, err := s.stream(ctx, func() (*rest.Request, error) {
		r, err := s.watchRequest(rv, missedTimeout)
		if err != nil {
			return nil, err
		}
		return r.SetHeader("Accept", acceptMetadata), nil
	})
	if err != nil {
		return "", err
	}
	defer body.Close()
	for events := newLines(body); ; {
		typ, raw, err := events.next()
		switch {
		case errors.Is(err, io.EOF) && time.Since(began) < missedTimeout*9/10:
			return "", fmt.Errorf("%w: the watch ended before its timeout", ErrSilent)
		case errors.Is(err, io.EOF):
			return "", nil
		case err != nil:
			return "", err
		case typ == watch.Error:
			st := &metav1.Status{}
			if err := json.Unmarshal(raw, st); err != nil {
				return "", err
			}
			return "", apierrors.FromObject(st)
		}
		at := gjson.GetBytes(raw, "metadata.resourceVersion").Str
		switch order, ok := object.CompareRV(at, rv); {
		case ok && order < 0: // of a proxy that sends an older answer again
			return "", fmt.Errorf("%w: the server sent the resourceVersion %s after %s", ErrSilent, at, rv)
		case typ != watch.Bookmark:
			return at, nil
		}
	}
}
