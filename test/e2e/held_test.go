package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestHeldWatches puts a box between a real server and the agent, which does something to watches, open
// ones or all. A client reads once. Within seconds the state is not fresh, wherever that is told, unless
// the agent has healed it before; no read waits; and once the box passes watches, all is caught up.
func TestHeldWatches(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 5}))
	client := harness.Clientset(t, cp.RESTConfig(controlplane.Admin))
	g := newGateway(t, cp)
	b := newBox()
	g.box = b
	x := newSite(t, settings{kubeconfig: g.Kubeconfig, resources: "- resource: configmaps", more: "health: {maxStaleness: 1s}"})
	a := x.start()
	a.awaitCaughtUp(anywhere("configmaps"))

	for i, tc := range []struct {
		open, begin boxKind
		heals       bool // while the box does it
	}{
		{holds, passes, true},
		{holds, holds, false},
		{delays, delays, true},
		{buffers, passes, true},
		{buffers, buffers, false},
		{holds, cuts, false},
	} {
		t.Run(fmt.Sprintf("open: %s, new: %s", tc.open, tc.begin), func(t *testing.T) {
			a := a.in(t)
			b.set(tc.open, tc.begin)
			name := fmt.Sprintf("held-%d", i)
			_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			require.NoError(t, err)
			seen := false
			poll(t, "the agent has it, or is not fresh", nil, func(context.Context) (bool, error) {
				began := time.Now()
				code, age := a.read(name)
				require.Less(t, time.Since(began), 5*time.Second, "a read that waits")
				seen = code == http.StatusOK
				return seen || age > 0, nil
			})
			if !tc.heals {
				require.False(t, seen)
				require.Zero(t, a.counters("snapcache_collection_caught_up", "", "collection")["configmaps"])
				a.await("not fresh", func(s *localapi.Status) string {
					if c := collections(s)["configmaps"]; c.CaughtUp || c.AgeSeconds == 0 || c.Problem == "" {
						return c.Freshness() + ", " + c.Problem
					}
					return ""
				})
				require.Equal(t, http.StatusServiceUnavailable, a.ready())
				b.set(passes, passes)
			}
			poll(t, "the agent has it", nil, func(context.Context) (bool, error) {
				code, _ := a.read(name)
				return code == http.StatusOK, nil
			})
			b.set(passes, passes)
			a.awaitCaughtUp(anywhere("configmaps"))
			require.Equal(t, http.StatusOK, a.ready())
		})
	}
	require.Equal(t, 1, a.relists("configmaps").total(), "no list but the first")
}

// TestBoxes puts a box between a real server and the agent for each thing that one does to each class of
// requests. The agent needs such a request, and then changes come. While the box does it, the agent has the
// server's state or is not fresh, and never goes back to an older state; and afterwards it has the server's.
func TestBoxes(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	client := harness.Clientset(t, cp.RESTConfig(controlplane.Admin))
	maps := client.CoreV1().ConfigMaps("default")
	for _, class := range []string{lists, watches, probes} {
		for _, kind := range []boxKind{holds, delays, buffers, cuts, replays} {
			t.Run(string(kind)+" "+class, func(t *testing.T) {
				t.Parallel()
				prefix := string(kind) + "-" + class + "-"
				create := func(name string) {
					t.Helper()
					_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: prefix + name}}, metav1.CreateOptions{})
					require.NoError(t, err)
				}
				remove := func(name string) {
					t.Helper()
					require.NoError(t, maps.Delete(t.Context(), prefix+name, metav1.DeleteOptions{}))
				}
				g, b := newGateway(t, cp), newBox()
				g.box, b.class, b.event = b, class, prefix+"watched"
				create("listed")
				a := newSite(t, settings{kubeconfig: g.Kubeconfig, resources: "- resource: configmaps"}).start()
				a.awaitCaughtUp(anywhere("configmaps"))
				has := func(name string) bool { code, _ := a.read(prefix + name); return code == http.StatusOK }
				await := func(name string, there bool) {
					t.Helper()
					poll(t, name, nil, func(context.Context) (bool, error) { return has(name) == there, nil })
				}
				create("watched")
				await("watched", true)
				for _, name := range []string{"listed", "watched"} {
					remove(name)
					await(name, false)
				}

				b.set(kind, kind)
				expired := class != lists
				g.answer(func(r *http.Request) int {
					if !expired && classOf(r) == watches {
						expired = true
						return http.StatusGone
					}
					return 0
				})
				g.Down()
				g.Up()
				create("new")
				began, had := time.Now(), false
				poll(t, "the box has done it for a while", nil, func(context.Context) (bool, error) {
					for _, name := range []string{"listed", "watched"} {
						require.False(t, has(name), "%s is back", name)
					}
					code, age := a.read(prefix + "new")
					require.True(t, code == http.StatusOK || !had, "it is gone again")
					had = code == http.StatusOK
					if took := time.Since(began); took > 7*time.Second {
						require.True(t, had || age > 0, "fresh, and without the change after %s: %d, age %d", took, code, age)
						return took > 9*time.Second, nil
					}
					return false, nil
				})
				b.set(passes, passes)
				await("new", true)
				a.awaitCaughtUp(anywhere("configmaps"))
				require.False(t, has("listed") || has("watched"))
				stored, err := maps.Get(t.Context(), prefix+"new", metav1.GetOptions{})
				require.NoError(t, err)
				stored.ManagedFields, stored.APIVersion, stored.Kind = nil, "v1", "ConfigMap"
				var cached corev1.ConfigMap
				require.NoError(t, json.Unmarshal(a.must("get", "configmap", prefix+"new", "-o", "json"), &cached))
				require.Equal(t, *stored, cached)
			})
		}
	}
}

// overSocket sends a GET to the agent's socket.
func (a *agent) overSocket(path string) *http.Response {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, "http://agent"+path, nil)
	require.NoError(a.t, err)
	resp, err := socketClient(a.socket).Transport.RoundTrip(r)
	require.NoError(a.t, err)
	require.NoError(a.t, resp.Body.Close())
	return resp
}

// read reads a ConfigMap in its newest state, and returns the status and the age of the answer.
func (a *agent) read(name string) (code, age int) {
	a.t.Helper()
	resp := a.overSocket("/api/v1/namespaces/default/configmaps/" + name)
	age, err := strconv.Atoi(resp.Header.Get("Age"))
	if resp.StatusCode == http.StatusOK {
		require.NoError(a.t, err)
	}
	return resp.StatusCode, age
}

func (a *agent) ready() int { a.t.Helper(); return a.overSocket("/readyz").StatusCode }
