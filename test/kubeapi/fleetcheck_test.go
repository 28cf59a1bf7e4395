package kubeapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// spoke is an agent that follows hubs.
type spoke struct {
	*site
	name string
	cut  bool // the link to the hubs

	http     *http.Client
	seen     map[string]uint64 // the newest resourceVersion that it had, by resource
	observed []observation
}

// observation is one state of a collection of a spoke.
type observation struct {
	resource string
	rv       uint64
	objects  map[string]version
	settled  bool // the spoke had caught up, and nothing changed
}

// restore restores the spoke's link.
func (s *spoke) restore() {
	s.t.Helper()
	if s.cut {
		s.cut = false
		s.link.Up()
	}
}

// observe reads what the spoke has, which must not be older than what it had.
func (s *spoke) observe(settled bool) {
	s.t.Helper()
	for _, r := range s.resources {
		o, synced := s.read(r)
		if !synced {
			continue
		}
		o.settled = settled
		require.GreaterOrEqual(s.t, o.rv, s.seen[o.resource], "%s: %s went back", s.name, o.resource)
		s.seen[o.resource] = o.rv
		s.observed = append(s.observed, o)
	}
}

// read reads a collection of the spoke: one state of its store. It is not synced if the spoke has never
// had a list.
func (s *spoke) read(r *resource) (o observation, synced bool) {
	s.t.Helper()
	if s.http == nil {
		var err error
		s.http, err = rest.HTTPClientFor(restConfig(s.t, s.cached))
		require.NoError(s.t, err)
		s.t.Cleanup(s.http.CloseIdleConnections)
	}
	resp, err := s.http.Get("https://" + s.address + r.path(s.only) + "?resourceVersion=0")
	require.NoError(s.t, err)
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return o, false
	case http.StatusServiceUnavailable: // the spoke has reached no server yet
		body, err := io.ReadAll(resp.Body)
		require.NoError(s.t, err)
		require.Contains(s.t, string(body), "has not named it")
		return o, false
	}
	require.Equal(s.t, http.StatusOK, resp.StatusCode)
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []json.RawMessage
	}
	require.NoError(s.t, json.NewDecoder(resp.Body).Decode(&list))
	o = observation{resource: r.Resource, objects: map[string]version{}}
	o.rv, err = strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	require.NoError(s.t, err)
	for _, item := range list.Items {
		v, err := parseVersion(item)
		require.NoError(s.t, err)
		o.objects[v.key] = v
	}
	return o, true
}

// stopped notes what the file of a spoke has that was ended. A kill may lose the newest seconds, together
// with their objects, but no more.
func (s *spoke) stopped(killed bool) {
	s.t.Helper()
	out, err := exec.Command(harness.Snapcache, "inspect", "--db", filepath.Join(s.dir, "cache.db"), "-o", "json").Output()
	require.NoError(s.t, err)
	var status localapi.Status
	require.NoError(s.t, json.Unmarshal(out, &status))
	for _, c := range status.Collections {
		rv, err := strconv.ParseUint(c.ResourceVersion, 10, 64)
		if !c.Synced {
			continue
		}
		require.NoError(s.t, err)
		if !killed {
			require.GreaterOrEqual(s.t, rv, s.seen[c.Resource], "%s: %s went back when it was stopped", s.name, c.Resource)
		}
		s.seen[c.Resource] = rv
	}
}

// awaitInStep waits until each hub and each spoke has what etcd has, and notes the states.
func (f *fleet) awaitInStep(when string) {
	f.t.Helper()
	newest := map[string]uint64{}
	for resource, changes := range f.truth.complete(f.t, f.on.ControlPlane) {
		if len(changes) > 0 {
			newest[resource] = changes[len(changes)-1].rv
		}
	}
	for _, s := range f.spokes {
		for _, r := range s.resources {
			var at uint64
			err := wait.PollUntilContextTimeout(f.t.Context(), 5*pollEvery, 2*patience, true, func(context.Context) (bool, error) {
				o, synced := s.read(r)
				at = o.rv
				return synced && (at >= newest[r.Resource] || s.only != "") && s.caughtUp(r), nil
			})
			require.NoError(f.t, err, "%s: %s has %s at %d, and etcd at %d", when, s.name, r.Resource, at, newest[r.Resource])
		}
		s.observe(true)
	}
}

// caughtUp reports whether the spoke watches a resource.
func (s *spoke) caughtUp(r *resource) bool { return s.collection(r.Resource).CaughtUp }

// check compares all that was observed with etcd, and looks at the lists. allowed is how many lists a
// spoke may have made for each other reason.
func (f *fleet) check(allowed map[string]int) {
	f.t.Helper()
	changes := f.truth.complete(f.t, f.on.ControlPlane)
	states, partial := 0, 0
	for _, s := range f.spokes {
		for _, o := range s.observed {
			states++
			ahead := s.compare(o, changes[o.resource])
			if ahead > 0 {
				partial++
			}
		}
	}
	f.t.Logf("%d states of %d spokes, %d of them within a replay", states, len(f.spokes), partial)
	f.checkLists(allowed)
	f.requireNoneDirect()
}

// compare compares a state with that of etcd at its resourceVersion. Within a replay an object may be as it
// was before, if another change of it is to come: of several changes, a replay has only the newest. It
// returns how many such objects there are.
func (s *spoke) compare(o observation, changes []change) (later int) {
	s.t.Helper()
	then, next := map[string]version{}, map[string]bool{}
	for _, c := range changes {
		switch {
		case s.only != "" && !strings.HasPrefix(c.key, s.only+"/"):
		case c.rv > o.rv:
			next[c.key] = true
		case c.deleted:
			delete(then, c.key)
		default:
			then[c.key] = c.version
		}
	}
	differs := func(key string, what string, args ...any) {
		if next[key] && !o.settled {
			later++
			return
		}
		s.t.Errorf("%s: %s at %d: %s %s", s.name, o.resource, o.rv, key, fmt.Sprintf(what, args...))
	}
	for key, want := range then {
		switch have, ok := o.objects[key]; {
		case !ok:
			differs(key, "is missing")
		case have.rv != want.rv || !have.sameObject(want):
			differs(key, "is at %d with %q, wanted %d with %q", have.rv, have.value, want.rv, want.value)
		}
	}
	for key, have := range o.objects {
		if _, ok := then[key]; !ok {
			differs(key, "is there, at %d, and was deleted", have.rv)
		}
		if have.rv > o.rv {
			s.t.Errorf("%s: %s at %d: %s is of %d", s.name, o.resource, o.rv, key, have.rv)
		}
	}
	return later
}

// listLine is a line of an agent's log about a list.
type listLine struct {
	collection, reason string
	from, to           uint64 // the checkpoint before, and the resourceVersion of the list
	seed               string // the server that it came from, if that is not the one in use
}

// lists reads the lists from the log of an agent.
func (s *site) lists() (all []listLine) {
	s.t.Helper()
	log, err := os.Open(filepath.Join(s.dir, "log"))
	require.NoError(s.t, err)
	defer log.Close()
	from := map[string]uint64{}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		line := lines.Text()
		rv, _ := strconv.ParseUint(logged(line, "rv"), 10, 64)
		id, _, _ := strings.Cut(logged(line, "collection"), "@") // a hub has the collections of all namespaces
		switch {
		case strings.Contains(line, `msg="relist needed"`):
			from[id] = rv
		case strings.Contains(line, "msg=listed"):
			all = append(all, listLine{id, logged(line, "reason"), from[id], rv, logged(line, "seed")})
			delete(from, id)
		}
	}
	require.NoError(s.t, lines.Err())
	return all
}

// logged returns an attribute of a line of a log, which has no spaces.
func logged(line, name string) string {
	_, rest, _ := strings.Cut(line, " "+name+"=")
	value, _, _ := strings.Cut(rest, " ")
	return value
}

// checkLists requires that each spoke has listed each collection once, for reasons other than the allowed
// only because no hub has what the spoke misses. A hub that was away for longer than the kube-apiserver's
// window has listed: it has the state at the end of that gap, and no deletions with their
// resourceVersions. A spoke with a checkpoint in the gap, which it has from another server, can't
// continue there. A hub without its file has the state of its first list, and nothing before.
//
// A batch in which a key changes more than once leaves such a gap too, when a hub catches up. The log does
// not have it, but the hub's history does, unless the hub was killed before it was durable: of the hubs'
// kills at most one in ten may be so.
func (f *fleet) checkLists(allowed map[string]int) {
	f.t.Helper()
	var gaps []listLine
	for _, h := range f.hubs {
		gaps = append(gaps, h.lists()...)
	}
	gap := func(l listLine) bool {
		for _, g := range gaps {
			lost := g.reason == "initial"
			if g.collection == l.collection && l.from < g.to && (lost || g.from < l.from) {
				return true
			}
		}
		return false
	}
	counts, skipped, unexplained := map[string]int{}, 0, 0
	for _, s := range f.spokes {
		initial := map[string]int{}
		for _, l := range s.lists() {
			counts[l.reason]++
			switch {
			case l.reason == "initial":
				initial[l.collection]++
			case allowed[l.reason] > 0:
				allowed[l.reason]--
			case l.reason == "expired" && gap(l):
			case l.reason == "expired" && slices.ContainsFunc(f.hubs, func(h *hub) bool { return h.skips(l) }):
				skipped++
			case l.reason == "expired":
				unexplained++
				f.t.Logf("%s listed %s at %d, it was at %d, in no gap", s.name, l.collection, l.to, l.from)
			default:
				f.t.Errorf("%s listed %s at %d because of %s, it was at %d; the hubs: %v", s.name, l.collection, l.to, l.reason, l.from, gaps)
			}
		}
		require.Len(f.t, initial, len(s.resources), s.name)
		for id, n := range initial {
			require.Equal(f.t, 1, n, "%s: initial lists of %s", s.name, id)
		}
	}
	kills := 0
	for _, h := range f.hubs {
		kills += h.kills
	}
	require.LessOrEqual(f.t, unexplained, (kills+9)/10, "lists of spokes in no gap; the hubs' lists: %v", gaps)
	f.t.Logf("lists of the spokes: %v, %d in the gap of a batch, %d in none after %d kills of hubs; of the hubs: %v", counts, skipped, unexplained, kills, gaps)
}

// skips reports whether a hub's history lacks the state from which a spoke would have continued.
func (h *hub) skips(l listLine) bool {
	h.t.Helper()
	i := slices.IndexFunc(h.resources, func(r *resource) bool { return r.GroupResource().String() == l.collection })
	require.GreaterOrEqual(h.t, i, 0, l.collection)
	client, err := rest.HTTPClientFor(restConfig(h.t, h.cached))
	require.NoError(h.t, err)
	defer client.CloseIdleConnections()
	resp, err := client.Get(fmt.Sprintf("https://%s%s?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion=%d", h.address, h.resources[i].path(""), l.from))
	require.NoError(h.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(h.t, err)
	return strings.Contains(string(body), `"code":410`)
}

// requireNoneDirect requires that no spoke, and no hub that has a seed, has listed at the kube-apiserver.
// Questions for one object are no lists.
func (f *fleet) requireNoneDirect() {
	f.t.Helper()
	log, err := os.Open(f.audit)
	require.NoError(f.t, err)
	defer log.Close()
	questions := 0
	decoder := json.NewDecoder(log)
	for decoder.More() {
		var e struct {
			RequestURI string
			User       struct{ Username string }
		}
		require.NoError(f.t, decoder.Decode(&e))
		if !strings.HasPrefix(e.User.Username, "system:serviceaccount:fleet:") {
			continue
		}
		u, err := url.Parse(e.RequestURI)
		require.NoError(f.t, err)
		require.Equal(f.t, "1", u.Query().Get("limit"), "%s at the kube-apiserver: %s", e.User.Username, e.RequestURI)
		questions++
	}
	f.t.Logf("%d questions to the kube-apiserver, no list", questions)
}
