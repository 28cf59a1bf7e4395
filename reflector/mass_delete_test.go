package reflector_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// keys returns n keys, numbered from a start.
func keys(from, n int) []string {
	var k []string
	for i := range n {
		k = append(k, fmt.Sprintf("ns/%d", from+i))
	}
	return k
}

// A list that would delete most of a large collection is applied only if the next list lacks most
// of the same objects.
func TestConfirmDeletions(t *testing.T) {
	const held = 200
	for _, x := range []struct {
		name    string
		holds   int
		missing [][]string
		reason  store.Reason
		percent int
		log     []string // of the lists that are held back, and of the one that is applied
	}{
		{"half", held, [][]string{keys(0, 100)}, store.ReasonExpired, 50, []string{"end"}},
		{"more than half, twice", held, [][]string{keys(0, 101), keys(0, 101)}, store.ReasonExpired, 50, []string{"abort", "held back 101", "end"}},
		{"more than half, once", held, [][]string{keys(0, 200), nil}, store.ReasonExpired, 50, []string{"abort", "held back 200", "end"}},
		{"about the same", held, [][]string{keys(0, 150), keys(10, 155)}, store.ReasonExpired, 50, []string{"abort", "held back 150", "end"}},
		{"others each time", held, [][]string{keys(0, 110), keys(90, 110), keys(90, 110)}, store.ReasonExpired, 50, []string{"abort", "held back 110", "abort", "held back 110", "end"}},
		{"others, half each time", held, [][]string{keys(0, 120), keys(60, 120), keys(60, 120)}, store.ReasonExpired, 50, []string{"abort", "held back 120", "abort", "held back 120", "end"}},
		{"others, less than half", held, [][]string{keys(0, 120), keys(59, 120)}, store.ReasonExpired, 50, []string{"abort", "held back 120", "end"}},
		{"all the same, and more", held, [][]string{keys(0, 120), keys(0, 190)}, store.ReasonExpired, 50, []string{"abort", "held back 120", "end"}},
		{"more than one may", held, [][]string{keys(0, 50), keys(0, 71), keys(0, 71)}, store.ReasonExpired, 10, []string{"abort", "held back 50", "abort", "held back 71", "end"}},
		{"as many as one may", held, [][]string{keys(0, 50), keys(0, 70)}, store.ReasonExpired, 10, []string{"abort", "held back 50", "end"}},
		{"the second lacks fewer", held, [][]string{keys(0, 200), keys(0, 101)}, store.ReasonExpired, 50, []string{"abort", "held back 200", "end"}},
		{"a small collection", 99, [][]string{keys(0, 99)}, store.ReasonExpired, 50, []string{"end"}},
		{"just large enough", 100, [][]string{keys(0, 51), keys(0, 51)}, store.ReasonExpired, 50, []string{"abort", "held back 51", "end"}},
		{"another percentage", held, [][]string{keys(0, 21), keys(0, 21)}, store.ReasonExpired, 10, []string{"abort", "held back 21", "end"}},
		{"every list accepted", held, [][]string{keys(0, 200)}, store.ReasonExpired, 100, []string{"end"}},
		{"option not set", held, [][]string{keys(0, 200)}, store.ReasonExpired, 0, []string{"end"}},
		{"another scope", held, [][]string{keys(0, 200)}, store.ReasonScopeChanged, 50, []string{"end"}},
		{"another cluster", held, [][]string{keys(0, 200), keys(0, 200)}, store.ReasonClusterChanged, 50, []string{"abort", "held back 200", "end"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := &script{holds: x.holds, missing: x.missing}
			log := play(t, s, time.Minute, func(o *reflector.Options) { o.Reason, o.ConfirmDeletions = x.reason, x.percent })
			var got []string
			for _, l := range log {
				if l == "abort" || has([]string{l}, "held back") > 0 {
					got = append(got, l)
				} else if has([]string{l}, "end") > 0 {
					got = append(got, "end")
				}
			}
			require.Equal(t, x.log, got)
			require.Equal(t, 1, has(log, "watch"), "%q", log)
		})
	}
}

// Neither a reason that arrives between two lists nor a list that fails confirms deletions.
func TestMassDelete_SurvivesFailedList(t *testing.T) {
	s := &script{holds: 200, missing: [][]string{keys(0, 200), keys(0, 200)}, lists: []error{nil, errors.New("unexpected EOF")}}
	seen := &observedErrors{}
	log := play(t, s, time.Minute, func(o *reflector.Options) {
		o.Reason, o.ConfirmDeletions = store.ReasonExpired, 50
		o.Observer = seen
	})
	require.Equal(t, 3, has(log, "begin expired"), "%q", log)
	require.Equal(t, 2, has(log, "abort"), "%q", log)
	require.Len(t, seen.all, 2)
	var held *reflector.MassDeleteError
	require.ErrorAs(t, seen.all[0], &held)
	require.Equal(t, reflector.MassDeleteError{Stored: 200, Deletions: 200}, *held)
	require.ErrorContains(t, seen.all[1], "unexpected EOF")
}

// After a list that was applied, no deletions are suspect.
func TestMassDelete_ForgottenAfterApply(t *testing.T) {
	s := &script{holds: 200, missing: [][]string{keys(0, 200), nil, keys(0, 200), keys(0, 200)}, watches: []answer{{err: apierrors.NewResourceExpired("too old")}}}
	log := play(t, s, time.Minute, func(o *reflector.Options) { o.Reason, o.ConfirmDeletions = store.ReasonExpired, 50 })
	require.Equal(t, 2, has(log, "held back"), "%q", log)
	require.Equal(t, 2, has(log, "end"), "%q", log)
}
