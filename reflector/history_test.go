package reflector_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

var gone = apierrors.NewResourceExpired("gone")

// The list after a 410 may come from a server that was restored or replaced meanwhile. It is then
// aborted, and made again for another reason.
func TestListOfAnotherHistory(t *testing.T) {
	at := func(rv string) func(*reflector.Options) {
		return func(o *reflector.Options) { o.Checkpoint.RV = rv }
	}
	held := func(rv string) map[string]deltafifo.Version {
		return map[string]deltafifo.Version{"a": {UID: "u-a", RV: rv}}
	}
	again := []string{"begin rv-ahead uid:1 force=true", `list page=500`, "item a@60", "end 100", "watch 100"}
	const (
		older = "refused rv-ahead: a is at 60 on the server, and was at 61 before"
		back  = "refused rv-ahead: the list is of 100, before the checkpoint 150"
	)
	ahead, lags := upstream.ErrAhead, apierrors.NewTooManyRequests("later", 1)
	retried := func(tried []string, then ...string) []string {
		return slices.Concat(tried, []string{"abort", "begin expired uid:1 force=false", "list page=500"}, tried, []string{"abort"}, then, again)
	}
	tried := []string{"item a@60", "probe 150"}
	for _, x := range []struct {
		name   string
		at     string
		held   string
		probes []error  // before the list, and after it
		listed []string // after the first list was begun
	}{
		{"the same", "90", "60", nil, []string{"item a@60", "end 100", "watch 100"}},
		{"changed since", "50", "40", nil, []string{"item a@60", "end 100", "watch 100"}},
		{"at the checkpoint", "100", "60", nil, []string{"item a@60", "end 100", "watch 100"}},
		{"before the checkpoint", "150", "60", []error{nil, ahead}, append([]string{"item a@60", "probe 150", "abort", back}, again...)},
		{"before the checkpoint, of a server that lags", "150", "60", []error{nil, lags, ahead}, retried(tried, back)},
		{"before the checkpoint, of one that has lagged", "150", "60", []error{nil, nil, ahead}, retried(tried, back)},
		{"an older object", "90", "61", nil, append([]string{"abort", older}, again...)},
		{"an older object before the checkpoint", "150", "61", []error{nil, ahead}, append([]string{"probe 150", "abort", back}, again...)},
		{"an older object of a server that lags", "150", "61", []error{nil, lags, ahead}, retried([]string{"probe 150"}, back)},
		{"an older object of a server that has lagged", "150", "61", []error{nil, nil, ahead}, retried([]string{"probe 150"}, back)},
		{"a change that was not one", "90", "59", nil, append([]string{"abort", "refused rv-ahead: a is at 60 on the server, which the checkpoint 90 should have brought"}, again...)},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := &script{refusals: true, watches: []answer{{err: gone}}, probes: x.probes, listItems: []*object.Object{pod("a", 60)}, held: held(x.held)}
			log := play(t, s, time.Minute, at(x.at))
			require.Equal(t, "begin expired uid:1 force=false", log[3])
			require.Equal(t, x.listed, log[5:])
		})
	}
	t.Run("another cluster", func(t *testing.T) {
		s := &script{refusals: true, watches: []answer{{err: gone}}, clusters: []string{"uid:1", "uid:2"}, listItems: []*object.Object{pod("a", 60)}}
		s.clusters = append(s.clusters, "uid:2")
		log := play(t, s, time.Minute, nil)
		require.Equal(t, []string{
			"refused cluster-changed: checkpoint is of cluster uid:1, this is uid:2",
			"begin cluster-changed uid:2 force=true", `list page=500`, "item a@60", "end 100", "watch 100",
		}, log[3:])
	})
	t.Run("stored versions are not trusted", func(t *testing.T) {
		s := &script{refusals: true, listItems: []*object.Object{pod("a", 60)}, held: held("61")}
		log := play(t, s, time.Minute, func(o *reflector.Options) { o.Checkpoint.RV, o.Reason = "150", store.ReasonScopeChanged })
		require.Equal(t, []string{"begin scope-changed uid:1 force=true", `list page=500`, "item a@60", "end 100", "watch 100"}, log)
	})
}

// The result of the guards holds for a watch that opens soon. If the watch opens later, the guards
// run again while it is open, before its first event is queued.
func TestWatchOpensLate(t *testing.T) {
	s := &script{watches: []answer{{opens: time.Second, lasts: time.Minute}}}
	require.Equal(t, []string{"probe 50", "watch 50", "probe 50", "watch 50"}, play(t, s, 3*time.Minute, nil))

	s = &script{watches: []answer{{opens: 10 * time.Second, lasts: time.Minute}}}
	require.Equal(t, []string{"probe 50", "watch 50", "probe 50", "probe 50", "watch 50"}, play(t, s, 3*time.Minute, nil))

	s = &script{refusals: true, watches: []answer{{opens: 10 * time.Second, open: true}}, clusters: []string{"uid:1", "uid:2", "uid:2"}}
	require.Equal(t, []string{
		"probe 50", "watch 50", "refused cluster-changed: checkpoint is of cluster uid:1, this is uid:2",
		"begin cluster-changed uid:2 force=true", `list page=500`, "end 100", "watch 100",
	}, play(t, s, time.Minute, nil))

	ahead := upstream.ErrAhead
	s = &script{watches: []answer{{opens: 10 * time.Second, open: true}}, probes: []error{nil, ahead, ahead, ahead}}
	log := play(t, s, time.Minute, nil)
	require.Equal(t, 1, has(log, "begin rv-ahead"), "%q", log)
	require.Equal(t, "watch 100", log[len(log)-1])

	// A watch that ends at its timeout needs no guards: its server was not restored.
	s = &script{watches: []answer{{lasts: full}, {lasts: full}}, ends: true}
	require.Equal(t, []string{"probe 50", "watch 50", "watch 50", "watch 50"}, play(t, s, 25*time.Minute, nil))
}
