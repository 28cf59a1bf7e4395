package collection

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/upstream"
)

var (
	errForbidden    = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no"))
	errUnauthorized = apierrors.NewUnauthorized("no")
	errDown         = &apierrors.StatusError{ErrStatus: metav1.Status{Reason: upstream.ReasonConnectionLost}}
	errBusy         = &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusServiceUnavailable}}
)

// step is a change of phase, and what it logs.
type step struct {
	phase reflector.Phase
	err   error
	log   string
}

func TestRejectionsAreLogged(t *testing.T) {
	const (
		forbidden    = `level=WARN msg="the server rejects the requests" collection=secrets error="the server forbids it (403)`
		unauthorized = `level=WARN msg="the server rejects the requests" collection=secrets error="the server does not accept the credential (401)`
		accepted     = `level=INFO msg="the server accepts the requests again" collection=secrets`
	)
	waiting, listing, watching := reflector.PhaseWaiting, reflector.PhaseListing, reflector.PhaseWatching
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"once for all retries", []step{
			{waiting, errForbidden, forbidden}, {listing, nil, ""}, {waiting, errForbidden, ""}, {listing, nil, ""}, {waiting, errForbidden, ""},
		}},
		{"401 after 403 and back", []step{
			{waiting, errForbidden, forbidden}, {waiting, errUnauthorized, unauthorized}, {waiting, errForbidden, forbidden},
		}},
		{"again after the requests were accepted", []step{
			{waiting, errUnauthorized, unauthorized}, {watching, nil, accepted}, {waiting, errUnauthorized, unauthorized},
		}},
		{"an outage in between changes nothing", []step{
			{waiting, errForbidden, forbidden}, {waiting, errDown, ""}, {waiting, errBusy, ""}, {waiting, errForbidden, ""}, {watching, nil, accepted},
		}},
		{"other failures are no rejections", []step{{waiting, errDown, ""}, {waiting, errBusy, ""}, {watching, nil, ""}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log strings.Builder
			logger := slog.New(slog.NewTextHandler(&log, nil))
			c := New(Spec{ID: "secrets"}, Options{Clock: clock.RealClock{}, Log: logger})
			observer := c.Tracker
			for i, s := range test.steps {
				log.Reset()
				observer.Phase(s.phase, s.err)
				if s.log == "" {
					require.Empty(t, log.String(), "step %d", i)
					continue
				}
				require.Contains(t, log.String(), s.log, "step %d", i)
				require.Equal(t, 1, strings.Count(log.String(), "\n"), "step %d", i)
			}
		})
	}
}

// TestHintOfForbiddenSecrets checks that the hint of a 403, and the log, have the time that is left
// until Secrets are purged, if there are any and it is the server that forbids them.
func TestHintOfForbiddenSecrets(t *testing.T) {
	const suffix = "; its stored objects are deleted in 4h0m if that stays so (secrets.purgeAfter)"
	for _, test := range []struct {
		name     string
		resource string // as configured
		synced   bool
		problem  error
		due      bool
	}{
		{"secrets", "secrets", true, errForbidden, true},
		{"nothing is stored", "secrets", false, errForbidden, false},
		{"the credential is not accepted", "secrets", true, errUnauthorized, false},
		{"another resource is forbidden", "secrets", true, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")), false},
		{"no secrets", "configmaps", true, errForbidden, false},
	} {
		for _, durable := range []bool{true, false} {
			t.Run(test.name+map[bool]string{true: ", durable", false: ", in memory"}[durable], func(t *testing.T) {
				var db store.DB = memory.New()
				if durable {
					bolted, err := bolt.Open(t.TempDir()+"/cache.db", bolt.Options{})
					require.NoError(t, err)
					db = bolted
				}
				defer db.Close()
				var log strings.Builder
				logger := slog.New(slog.NewTextHandler(&log, nil))
				name, err := config.ParseResourceName(test.resource)
				require.NoError(t, err)
				c := New(Spec{Entry: config.Resource{Resource: name}, ID: "secrets"}, Options{
					DB: db, Clock: clock.RealClock{}, Log: logger, PurgeAfter: func() time.Duration { return 24 * time.Hour },
				})
				resource := upstream.Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret", Namespaced: true}
				require.NoError(t, c.Open(resource))
				if test.synced {
					r, err := c.stored.Replace()
					require.NoError(t, err)
					require.NoError(t, r.Commit(store.Checkpoint{RV: "1"}))
				}
				if bolted, ok := db.(*bolt.DB); ok {
					require.NoError(t, bolted.SetForbiddenFor("secrets", 20*time.Hour))
					require.NoError(t, c.Open(resource), "as after a restart")
				} else {
					c.Tracker.SetForbiddenFor(20 * time.Hour)
				}
				log.Reset()
				c.Tracker.Phase(reflector.PhaseWaiting, test.problem)
				if !test.due {
					require.NotContains(t, c.Hint(test.problem), "deleted")
					require.NotContains(t, log.String(), "purgeIn")
					return
				}
				require.Equal(t, upstream.Describe(test.problem)+suffix, c.Hint(test.problem))
				require.Contains(t, log.String(), "purgeIn=4h0m0s")
			})
		}
	}
}
