package kubernetes

import (
	"errors"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/kubeapi/serving"
)

// refusals counts and logs refused clients of the address: one line a minute for each reason.
type refusals struct {
	metrics *kubeapi.Metrics
	log     *slog.Logger
	logged  map[kubeapi.Refusal]*rate.Sometimes
}

func newRefusals(m *kubeapi.Metrics, log *slog.Logger) *refusals {
	f := &refusals{metrics: m, log: log, logged: map[kubeapi.Refusal]*rate.Sometimes{}}
	for _, why := range kubeapi.Refusals {
		f.logged[why] = &rate.Sometimes{First: 1, Interval: time.Minute}
	}
	return f
}

// note counts a refusal of a client at an address; user is empty if it is not known.
func (f *refusals) note(peer, user string, err error) {
	why := refusalOf(err)
	f.metrics.Refused(why)
	f.logged[why].Do(func() {
		f.log.Warn("refused a client; others of this minute are not logged", "from", peer, "user", user, "reason", err)
	})
}

func refusalOf(err error) kubeapi.Refusal {
	switch {
	case errors.Is(err, access.ErrTooManyTokens), errors.Is(err, access.ErrBusy):
		return kubeapi.RefusedTokens
	case errors.Is(err, serving.ErrTooFast):
		return kubeapi.RefusedRate
	case errors.Is(err, serving.ErrTooManyNow):
		return kubeapi.RefusedRequests
	case errors.Is(err, serving.ErrTooLarge):
		return kubeapi.RefusedBytes
	case errors.Is(err, serving.ErrTooManyConnections):
		return kubeapi.RefusedConnections
	}
	return kubeapi.RefusedUnauthorized
}
