package reflector_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

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

// A proof of one collection that the server was restored counts for all that have not listed since: those that
// watch, wait, list or start later. Each of them lists once.
func TestRestoredForAll(t *testing.T) {
	ahead := upstream.ErrAhead
	proving := func() *script { return &script{probes: []error{ahead, ahead, ahead}} }
	const told = "refused rv-ahead: another collection has shown that the server was restored: the resourceVersion is ahead of the server"
	again := []string{told, "begin rv-ahead uid:1 force=true", "list page=500", "end 100", "watch 100"}
	slow := &script{watches: []answer{{err: gone}}}
	slow.noted = func(int) {
		if last := slow.log[len(slow.log)-1]; strings.HasPrefix(last, "list") {
			time.Sleep(10 * time.Second)
		}
	}
	waiting := &script{clusters: []string{"error: refused"}}
	for _, x := range []struct {
		name  string
		other *script
		log   []string
	}{
		{"watches", &script{}, slices.Concat([]string{"probe 50", "watch 50"}, again)},
		{"proves it too", proving(), nil},
		{"lists", slow, slices.Concat(
			[]string{"probe 50", "watch 50", "refused expired: " + gone.Error(), "begin expired uid:1 force=false", "list page=500", "end 100", "watch 100"}, again)},
		{"waits", waiting, again},
	} {
		t.Run(x.name, func(t *testing.T) {
			var history reflector.History
			first := proving()
			x.other.refusals = true
			playAll(t, []*script{first, x.other}, time.Minute, func(o *reflector.Options) {
				o.Member = history.Join(true)
				if o.Source == waiting {
					o.Backoff = &wait.Backoff{Duration: time.Hour}
				}
			})
			require.Equal(t, 1, has(first.log, "begin"), "%q", first.log)
			if x.log == nil {
				require.Equal(t, 1, has(x.other.log, "begin"), "%q", x.other.log)
				return
			}
			require.Equal(t, x.log, x.other.log)
		})
	}
	t.Run("it may be of another datastore", func(t *testing.T) {
		var history reflector.History
		watches := &script{}
		playAll(t, []*script{proving(), watches}, time.Minute, func(o *reflector.Options) { o.Member = history.Join(o.Source == watches) })
		require.Equal(t, []string{"probe 50", "watch 50"}, watches.log)
	})
	synctest.Test(t, func(t *testing.T) {
		var history reflector.History
		member, other := history.Join(true), history.Join(true)
		for range 2 { // the second one has listed since the first proof
			proving().play(t, time.Minute, func(o *reflector.Options) { o.Member = member })
			late := &script{refusals: true}
			late.play(t, time.Minute, func(o *reflector.Options) { o.Member = other })
			require.Equal(t, again, late.log)
			late.log = nil
			late.play(t, time.Minute, func(o *reflector.Options) { o.Member = other })
			require.Equal(t, []string{"probe 50", "watch 50"}, late.log)
		}
	})
}

// A server that answers again after a long outage, and is behind the checkpoint, is asked again soon: the waits of
// the outage are over.
func TestAheadAfterOutage(t *testing.T) {
	ahead := upstream.ErrAhead
	s := &script{clusters: slices.Repeat([]string{"error: refused"}, 8), probes: []error{ahead, ahead, ahead}}
	d := waits(t, s, time.Hour, nil)
	require.Len(t, d, 11)
	require.GreaterOrEqual(t, d[7], 30*time.Second)
	require.LessOrEqual(t, d[8], 1600*time.Millisecond)
	require.LessOrEqual(t, d[9], 3200*time.Millisecond)
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
