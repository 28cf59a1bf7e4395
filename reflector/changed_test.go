package reflector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
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

// versioned is a script whose source lists versions, and whose consumer holds 300 pods.
type versioned struct {
	*script
	versions []upstream.Version
	failures []error // of lists of versions
	fetched  func(key string) (*object.Object, error)
}

func (v *versioned) Versions(_ context.Context, o upstream.VersionsOptions, each func(upstream.Version) error) (string, error) {
	v.note("versions page=%d one state=%v", o.PageSize, o.OneState)
	if err, _ := take(v.script, &v.failures); err != nil {
		return "", err
	}
	for _, x := range v.versions {
		if err := each(x); err != nil {
			return "", err
		}
	}
	return "100", nil
}

func (v *versioned) GetAt(_ context.Context, key, rv string) (*object.Object, error) {
	v.note("get %s at %s", key, rv)
	return v.fetched(key)
}

func (v *versioned) Held() (int, error) { return v.holds, nil }

func (v *versioned) KeepVersion(key string, is deltafifo.Version) (bool, error) {
	return v.held[key] == is, nil
}

func name(i int) string { return fmt.Sprintf("p-%03d", i) }

// versionedOf returns a script with 300 pods, of which these have changed.
func versionedOf(changed ...int) *versioned {
	v := &versioned{script: &script{holds: 300, held: map[string]deltafifo.Version{}, watches: []answer{{err: apierrors.NewResourceExpired("old")}}}}
	v.fetched = func(key string) (*object.Object, error) { return pod(key, 90), nil }
	for i := range 300 {
		held := deltafifo.Version{UID: "u-" + name(i), RV: fmt.Sprint(10 + i%40)}
		v.held[name(i)] = held
		if slices.Contains(changed, i) {
			held.RV = "90"
		}
		v.versions = append(v.versions, upstream.Version{Key: name(i), UID: held.UID, RV: held.RV})
	}
	return v
}

// After a 410 only the versions and the changed objects are read, in one state of the server. If that is
// not less, or fails, the list is a whole one.
func TestListOnlyChanges(t *testing.T) {
	versions, whole := "versions page=500 one state=true", "list page=500"
	few, many := []int{3, 200}, make([]int, 11)
	for i := range many {
		many[i] = i
	}
	returns := func(o *object.Object, err error) func(*versioned) {
		return func(v *versioned) { v.fetched = func(string) (*object.Object, error) { return o, err } }
	}
	for _, tc := range []struct {
		name    string
		changed []int
		script  func(*versioned)
		options func(*reflector.Options)
		lists   []string // the requests, without those for objects
		gets    int
	}{
		{name: "nothing changed", lists: []string{versions}},
		{name: "few changed", changed: few, lists: []string{versions}, gets: 2},
		{name: "most that are fetched", changed: many[:10], lists: []string{versions}, gets: 10},
		{name: "many changed", changed: many, lists: []string{versions, whole}},
		{name: "a small collection", changed: few, script: func(v *versioned) { v.holds = 199 }, lists: []string{whole}},
		{name: "another reason", changed: few, options: func(o *reflector.Options) { o.Reason = store.ReasonRequested }, lists: []string{whole}},
		{name: "another history", changed: few, options: func(o *reflector.Options) { o.Reason = store.ReasonRVAhead }, lists: []string{whole}},
		{name: "versions compacted", changed: few, script: func(v *versioned) { v.failures = []error{apierrors.NewResourceExpired("old")} }, lists: []string{versions, whole}},
		{name: "no versions", changed: few, script: func(v *versioned) { v.failures = []error{upstream.ErrBadList} }, lists: []string{versions, whole}},
		{name: "state compacted", changed: few, script: returns(nil, apierrors.NewResourceExpired("old")), lists: []string{versions, whole}, gets: 2},
		{name: "no object", changed: few, script: returns(nil, upstream.ErrNoObject), lists: []string{versions, whole}, gets: 2},
		{name: "another state", changed: few, script: returns(pod(name(3), 91), nil), lists: []string{versions, whole}, gets: 2},
		{name: "another object", changed: few, script: returns(pod("other", 90), nil), lists: []string{versions, whole}, gets: 2},
		{name: "unreachable once", changed: few, script: func(v *versioned) { v.failures = []error{syscall.ECONNREFUSED} }, lists: []string{versions, versions}, gets: 2},
		{
			name: "always unreachable", changed: few,
			script: func(v *versioned) { v.failures = slices.Repeat([]error{syscall.ECONNREFUSED}, 9) },
			lists:  []string{versions, versions, versions, whole},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := versionedOf(tc.changed...)
			if tc.script != nil {
				tc.script(v)
			}
			playAll(t, []*script{v.script}, time.Minute, func(o *reflector.Options) {
				o.Source, o.Queue = v, v
				if tc.options != nil {
					tc.options(o)
					v.watches = nil
				}
			})
			var lists []string
			for _, l := range v.log {
				if l == versions || strings.HasPrefix(l, "list") {
					lists = append(lists, l)
				}
			}
			require.Equal(t, tc.lists, lists, "%q", v.log)
			require.Equal(t, tc.gets, has(v.log, "get "))
			require.Equal(t, 1, has(v.log, "end 100"), "%q", v.log)
			require.Equal(t, has(v.log, "begin"), 1+has(v.log, "abort"))
			require.Equal(t, "watch 100", v.log[len(v.log)-1])
			if len(tc.lists) == 1 && tc.lists[0] == versions {
				for _, i := range tc.changed {
					require.Contains(t, v.log, "item "+name(i)+"@90")
				}
			}
		})
	}
}

// A list that would delete most objects is confirmed by a whole one, after a wait.
func TestListOnlyChanges_MassDelete(t *testing.T) {
	v := versionedOf()
	v.missing = [][]string{keys(0, 290), keys(0, 290)}
	playAll(t, []*script{v.script}, time.Minute, func(o *reflector.Options) {
		o.Source, o.Queue, o.ConfirmDeletions = v, v, 50
	})
	require.Equal(t, []int{1, 1, 1, 1}, []int{has(v.log, "versions"), has(v.log, "held back 290"), has(v.log, "list"), has(v.log, "end")}, "%q", v.log)
}
