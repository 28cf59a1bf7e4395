package kubeapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/rest"
)

// program is a client of a Kubernetes API.
type program struct {
	name string

	// start starts the program, which ends with the test.
	start func(t *testing.T, config *rest.Config) []view

	// noWatchList is set for a program without the feature gate WatchListClient.
	noWatchList bool
}

// view is what a client has of a resource.
type view struct {
	name   string
	of     schema.GroupVersionResource
	form   form
	wanted func(*unstructured.Unstructured) bool // which objects; nil for all
	read   func(context.Context) ([]runtime.Object, error)
}

var programs = []program{
	{name: "informers with WatchList", start: startInformers},
	{name: "informers without WatchList", start: startInformers, noWatchList: true},
	{name: "controller-runtime with WatchList", start: startManager},
	{name: "controller-runtime without WatchList", start: startManager, noWatchList: true},
	{name: "RetryWatcher", start: startRetryWatchers},
}

// run is a program that runs.
type run struct {
	name     string
	views    []view
	requests *requests
}

// TestClients runs clients through restarts of the agent and a cut of its link. They have the
// kube-apiserver's objects after each step, and list only at their start.
func TestClients(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t, shared.plane, "clients"), newSite(t, shared.plane)
	p.change()
	require.NoError(t, s.agent.await(t.Context(), s.resources))

	// A read is consistent, so it has the last change, whether or not the agent had it before.
	direct := []*run{{name: "client-go", views: directViews(t, restConfig(t, s.cached)), requests: &requests{}}}
	everything := func(of schema.GroupVersionResource) []*unstructured.Unstructured { return p.read(t, of) }
	requireInStep(t, "at the start", direct, everything)
	running := startClients(t, s)
	requireInStep(t, "at the start", running, everything)
	for _, r := range running {
		require.NotEmpty(t, r.requests.lists(), "%s: no list was seen, so that their absence proves nothing", r.name)
	}
	p.change()
	requireInStep(t, "after changes", running, everything)

	s.stop()
	forget(running)
	p.change()
	s.start()
	requireInStep(t, "after a restart of the agent with changes", running, everything)
	requireNoLists(t, "after a restart of the agent with changes", running)

	s.link.Down()
	kept := map[schema.GroupVersionResource][]*unstructured.Unstructured{}
	for _, of := range []schema.GroupVersionResource{configMaps, pods, nodes, deployments, widgets} {
		for _, o := range p.read(t, of) {
			if p.mine(o) {
				kept[of] = append(kept[of], o)
			}
		}
	}
	p.change()
	s.stop()
	forget(running)
	s.start()
	late := startClients(t, s)
	offline := func(of schema.GroupVersionResource) []*unstructured.Unstructured { return kept[of] }
	requireInStep(t, "offline", onlyMine(slices.Concat(direct, late, running), p), offline)
	requireNoLists(t, "offline", running)

	forget(late)
	s.link.Up()
	requireInStep(t, "after the link is back", slices.Concat(direct, late, running), everything)
	p.change()
	requireInStep(t, "after the link is back, with changes", slices.Concat(direct, late, running), everything)
	requireNoLists(t, "after the link is back", append(late, running...))
}

// starting is held while clients start: the feature gates are those of the process.
var starting sync.Mutex

// startClients starts all programs.
func startClients(t *testing.T, s *site) []*run {
	t.Helper()
	return startClientsAt(t, s, s.address)
}

// startClientsAt starts all programs at another address of the agent. Whether an informer begins with a
// WatchList is decided when it starts.
func startClientsAt(t *testing.T, s *site, address string) []*run {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	gates := clientfeatures.FeatureGates().(interface {
		Set(gate clientfeatures.Feature, value bool) error
	})
	var all []*run
	for _, p := range programs {
		require.NoError(t, gates.Set(clientfeatures.WatchListClient, !p.noWatchList))
		config, seen := restConfig(t, s.cached), &requests{}
		config.Host = "https://" + address
		config.Wrap(seen.wrap)
		all = append(all, &run{name: p.name, views: p.start(t, config), requests: seen})
	}
	return all
}

// requireInStep waits until the clients have the objects that truth returns.
func requireInStep(t *testing.T, when string, running []*run, truth func(schema.GroupVersionResource) []*unstructured.Unstructured) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, r := range running {
		for _, v := range r.views {
			var d string
			err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
				var err error
				if d, err = v.diff(ctx, truth(v.of)); err != nil {
					d = err.Error()
				}
				return d == "", nil
			})
			if err != nil {
				t.Errorf("%s: %s, %s of %s: %.3000s\nrequests: %s", when, r.name, v.name, v.of.Resource, d, r.requests)
			}
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// diff returns the differences between a view and the objects of the kube-apiserver.
func (v view) diff(ctx context.Context, truth []*unstructured.Unstructured) (string, error) {
	var want []runtime.Object
	for _, o := range truth {
		if v.wanted != nil && !v.wanted(o) {
			continue
		}
		formed, err := v.form(o)
		if err != nil {
			return "", err
		}
		want = append(want, formed)
	}
	got, err := v.read(ctx)
	if err != nil {
		return "", err
	}
	return objectDiff(want, got)
}

// onlyMine returns the clients with views of the test's own objects: those of other tests may have
// changed when the link was cut.
func onlyMine(running []*run, p *place) []*run {
	var all []*run
	for _, r := range running {
		mine := &run{name: r.name, requests: r.requests}
		for _, v := range r.views {
			read := v.read
			v.read = func(ctx context.Context) ([]runtime.Object, error) {
				all, err := read(ctx)
				var own []runtime.Object
				for _, o := range all {
					content, convertErr := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
					if convertErr != nil {
						return nil, convertErr
					}
					if p.mine(&unstructured.Unstructured{Object: content}) {
						own = append(own, o)
					}
				}
				return own, err
			}
			mine.views = append(mine.views, v)
		}
		all = append(all, mine)
	}
	return all
}

func forget(running []*run) {
	for _, r := range running {
		r.requests.forget()
	}
}

// requireNoLists requires that no client has listed since its requests were forgotten.
func requireNoLists(t *testing.T, when string, running []*run) {
	t.Helper()
	for _, r := range running {
		require.Empty(t, r.requests.lists(), "%s: %s has listed; its requests: %s", when, r.name, r.requests)
	}
}

// requests records the requests of a client that were answered.
type requests struct {
	mu   sync.Mutex
	seen []seenRequest
}

type seenRequest struct {
	url  *url.URL
	code int
}

func (s seenRequest) String() string { return fmt.Sprintf("%d %s", s.code, s.url.RequestURI()) }

// listed matches the paths of all objects of a resource.
var listed = regexp.MustCompile(`^/(api/v1|apis/[^/]+/[^/]+)/[^/]+$`)

// lists reports whether the request asked for all objects: a list, or a watch that begins with them.
func (s seenRequest) lists() bool {
	if !listed.MatchString(s.url.Path) {
		return false
	}
	q := s.url.Query()
	rv := q.Get("resourceVersion")
	return !q.Has("watch") || rv == "" || rv == "0" || q.Get("sendInitialEvents") == "true"
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(q)
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen = append(r.seen, seenRequest{q.URL, resp.StatusCode})
		}
		return resp, err
	})
}

// forget forgets the requests so far.
func (r *requests) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// lists returns the requests for all objects.
func (r *requests) lists() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lists []string
	for _, s := range r.seen {
		if s.lists() {
			lists = append(lists, s.String())
		}
	}
	return lists
}

func (r *requests) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, s := range r.seen {
		fmt.Fprintf(&b, "\n%s", s)
	}
	return b.String()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }
