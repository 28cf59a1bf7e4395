package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/kubeapi/internal/status"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

const (
	// waitLimit is how long a request waits for its resourceVersion, as in a kube-apiserver.
	waitLimit = 3 * time.Second

	// probeLimit is how long a request waits for the server's resourceVersion.
	probeLimit = 5 * time.Second

	// settleTime is how long a consistent read waits for the last events. The server has sent them
	// before it answers the probe, on another stream. They are only known to be missing if the
	// collection's own objects have changed: its resourceVersion lags behind the server's as long as
	// other resources change, up to the next bookmark.
	settleTime = 100 * time.Millisecond
)

// view returns a state of the collection that a request with a resourceVersion may be answered from,
// and sets the headers about its age.
func (s *Server) view(ctx context.Context, h http.Header, c *served, rv string) (store.View, error) {
	now := Freshness{Connected: true}
	if c.Freshness != nil {
		now = c.Freshness()
	}
	if rv == "" && now.Connected && c.Probe != nil {
		if err := s.settle(ctx, c); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			now = c.Freshness()
			now.Connected = false // though its watch may not have failed yet
		}
	}
	v, err := c.View()
	if err != nil {
		return nil, err
	}
	state := v.State()
	switch {
	case !state.Synced:
		err = later("storage is (re)initializing")
	case v.Info() != c.info:
		err = later("the resource is being served in another version or scope")
	case rv != "" && object.NewerRV(rv, state.RV):
		v.Close()
		return s.await(ctx, h, c, rv)
	default:
		err = s.age(h, c, now)
	}
	if err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// await waits until the collection is at rv, and returns a view.
func (s *Server) await(ctx context.Context, h http.Header, c *served, rv string) (store.View, error) {
	connected := c.Freshness == nil || c.Freshness().Connected
	current, err := s.reach(ctx, c, rv, waitLimit)
	switch {
	case err != nil:
		return nil, err
	case object.NewerRV(rv, current):
		return nil, tooNew(rv, current, connected && s.isAhead(ctx, c, rv))
	}
	return s.view(ctx, h, c, "0")
}

// isAhead reports whether a resourceVersion is newer than the server's newest state, and not only than
// the collection's: that lags by the events that are on their way and, while no object of it changes, by
// up to the time between two bookmarks.
func (s *Server) isAhead(ctx context.Context, c *served, rv string) bool {
	if c.Probe == nil {
		return true
	}
	probing, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	newest, err := c.probes.get(probing, c.Probe)
	return err == nil && !reached(newest, rv)
}

// reach waits until the collection is at rv, or the time is over, and returns where it is.
func (s *Server) reach(ctx context.Context, c *served, rv string, limit time.Duration) (string, error) {
	timer := s.opts.Clock.NewTimer(limit)
	defer timer.Stop()
	for {
		var changed <-chan struct{}
		if c.Changed != nil {
			changed = c.Changed() // before the state is read, so that no change is missed
		}
		state := c.State()
		if !object.NewerRV(rv, state.RV) {
			return state.RV, nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-timer.C():
			return state.RV, nil
		case <-changed:
		}
	}
}

// settle waits until the collection has the server's state of the moment when the request came. If the
// server has not moved since an earlier read, that one has waited.
func (s *Server) settle(ctx context.Context, c *served) error {
	probing, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	rv, err := c.probes.get(probing, c.Probe)
	if err != nil {
		return err
	}
	if at := c.settled.Load(); at != nil && *at == rv {
		return nil
	}
	if _, err = s.reach(ctx, c, rv, settleTime); err == nil {
		c.settled.Store(&rv)
	}
	return err
}

// age sets the headers about the age of an answer, or refuses it.
func (s *Server) age(h http.Header, c *served, now Freshness) error {
	if now.Connected {
		h.Set("Age", "0")
		return nil
	}
	var staleness Staleness
	if c.Staleness != nil {
		staleness = c.Staleness()
	}
	age, state := now.Age(s.opts.Clock.Now()), now.Since.UTC().Format(time.RFC3339)
	fault := "the server can't be reached"
	if c.Fault != nil {
		fault = c.Fault()
	}
	seconds := int64(clocks.UnknownSeconds)
	if age.Known() {
		seconds = min(seconds, int64(age.Duration().Seconds()))
	} else {
		state += ", of unknown age, as the clock is behind it"
	}
	h.Set("Age", strconv.FormatInt(seconds, 10))
	if staleness.Policy == Refuse && !age.AtMost(staleness.MaxAge) {
		return status.Error(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf(
			"%s since %s, and %s that are older than %s are not served", fault, state, groupResource(c.info), staleness.MaxAge))
	}
	if staleness.Policy != Serve || !age.Known() {
		h.Set("Warning", fmt.Sprintf(`299 - "snapcache: %s: this is the state of %s"`, fault, state))
	}
	return nil
}

// reached reports whether a and b are comparable and a is not less.
func reached(a, b string) bool {
	order, ok := object.CompareRV(a, b)
	return ok && order >= 0
}

// isTooNew reports whether an error means that the cache has not reached a resourceVersion, while it
// follows the server.
func isTooNew(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code == http.StatusGatewayTimeout
}
