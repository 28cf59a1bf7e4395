package reflector_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// seeding is a source that lists from a seed if it may, and fails to, if fails is set.
type seeding struct {
	*script
	fails error
}

func (s *seeding) List(ctx context.Context, opts upstream.ListOptions, each func(*object.Object) error) (string, error) {
	if opts.Seeded != nil {
		s.note("may come from the seed")
		opts.Seeded("https://hub", s.fails)
	}
	return s.script.List(ctx, opts, each)
}

// TestSeed checks which lists may come from a seed, and the line of the log.
func TestSeed(t *testing.T) {
	const listed = `msg=listed reason=initial rv=100 items=1 took=0s`
	for _, tc := range []struct {
		name     string
		reason   store.Reason
		fails    error
		may      bool
		log, not string
	}{
		{"from the seed", store.ReasonInitial, nil, true, listed + " seed=https://hub\n", "level=WARN"},
		{"not from the seed", store.ReasonInitial, errors.New("another cluster"), true,
			`level=WARN msg="the first list does not come from the seed" seed=https://hub error="another cluster"` + "\n", listed + " seed"},
		{"a relist", store.ReasonRequested, nil, false, "reason=requested", "seed"},
		{"a damaged collection", store.ReasonRecovered, nil, false, "reason=recovered", "seed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			s := &script{listItems: []*object.Object{pod("a", 7)}}
			lines := play(t, s, time.Minute, func(o *reflector.Options) {
				o.Source, o.Reason = &seeding{s, tc.fails}, tc.reason
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			if tc.may {
				require.Contains(t, lines, "may come from the seed")
			} else {
				require.NotContains(t, lines, "may come from the seed")
			}
			require.Contains(t, log.String(), tc.log)
			require.NotContains(t, log.String(), tc.not)
		})
	}
}
