package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestConfigCheckCluster measures a server that was restarted with objects: a watch resumes from the objects that were made
// since, and not from older ones. The server's audit log shows that nothing was written.
func TestConfigCheckCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, audit := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	require.NoError(t, os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}`), 0o600))
	cp := harness.ControlPlane(t, controlplane.Options{APIServerArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + audit, "--audit-log-mode=blocking",
	}})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 1200, Pods: 30, Widgets: 10, Namespaces: 3}))
	require.NoError(t, cp.RestartAPIServer(t.Context()))
	harness.Kubectl(t, cp, "create", "configmap", "first", "-n", "default")
	harness.Kubectl(t, cp, "create", "configmap", "second", "-n", "default")
	first := strings.TrimSpace(string(harness.Kubectl(t, cp, "get", "configmap", "first", "-n", "default", "-o", "jsonpath={.metadata.resourceVersion}")))

	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
- resource: pods
  namespaces: [shop-0001]
- resource: widgets.example.com
`})
	done := make(chan struct{})
	changing := sync.WaitGroup{}
	changing.Go(func() { // a server sends no bookmark while nothing changes
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Second):
			}
			_, err := cp.Kubectl(t.Context(), "annotate", "--overwrite", "configmap", "second", "-n", "default", fmt.Sprint("i=", i))
			assert.NoError(t, err)
		}
	})
	r := x.run("config", "check", "--config", x.config, "--kubeconfig", x.kubeconfig, "--cluster", "-o", "json")
	close(done)
	changing.Wait()
	require.Zero(t, r.Code, r.Stderr)
	type cost struct {
		Requests, Bytes, UnpackedBytes int64
		Seconds                        float64
	}
	var report struct {
		Server, Version string
		Features        map[string]string
		Clock           struct{ AheadSeconds, ErrorSeconds float64 }
		Latency         struct {
			Requests                    int
			MedianSeconds, WorstSeconds float64
		}
		Problems, Notes []string
		Collections     []struct {
			Collection, Problem string
			Objects             int64
			List, Resume        cost
			Window              struct {
				Known                         bool
				ResumesFrom, Expired, Changed string
			}
			Bookmark struct {
				Arrived      bool
				AfterSeconds float64
			}
		}
		Resume, List cost
	}
	require.NoError(t, json.Unmarshal(r.Stdout, &report))
	require.Equal(t, cp.URL(), report.Server)
	require.Regexp(t, `^v1\.\d+\.\d+`, report.Version)
	require.Equal(t, map[string]string{"watchList": "yes", "aggregatedDiscovery": "yes", "consistentReads": "yes"}, report.Features)
	require.InDelta(t, 0, report.Clock.AheadSeconds, 0.001+report.Clock.ErrorSeconds, "the clock is the same one")
	require.Less(t, report.Clock.ErrorSeconds, 0.5)
	require.Equal(t, 10, report.Latency.Requests)
	require.LessOrEqual(t, report.Latency.MedianSeconds, report.Latency.WorstSeconds)
	require.Empty(t, report.Problems)
	notes := strings.Join(report.Notes, "\n")
	require.Len(t, report.Collections, 3)
	for i, want := range []struct {
		id      string
		objects int64
		pages   int64
	}{{"configmaps", 1200, 3}, {"pods@shop-0001", 10, 1}, {"widgets.example.com", 10, 1}} {
		c := report.Collections[i]
		require.Equal(t, want.id, c.Collection)
		require.Empty(t, c.Problem)
		require.GreaterOrEqual(t, c.Objects, want.objects)
		require.Equal(t, want.pages, c.List.Requests)
		// The server's cache of a resource may not hear of changes of others.
		require.Equal(t, !c.Bookmark.Arrived, strings.Contains(notes, want.id), notes)
		require.True(t, c.Window.Known)
		require.NotEmpty(t, c.Window.Expired, "the server has no events from before its start")
		require.Equal(t, want.id == "configmaps", c.Window.ResumesFrom != "")
		require.LessOrEqual(t, c.Resume.Requests, int64(5))
		require.Less(t, c.Resume.Bytes, c.List.UnpackedBytes)
	}
	maps := report.Collections[0]
	require.Less(t, maps.List.Bytes*3, maps.List.UnpackedBytes, "lists are compressed")
	require.Equal(t, first, maps.Window.ResumesFrom)
	require.NotEmpty(t, maps.Window.Changed)
	require.True(t, maps.Bookmark.Arrived)
	require.InDelta(t, 61, maps.Bookmark.AfterSeconds, 5)
	require.Greater(t, report.List.Bytes, maps.List.Bytes)

	// A user without rights: the report has the failures, and the errors are those of the check without it.
	x.kubeconfig = harness.Kubeconfig(t, cp, controlplane.Stranger)
	r = x.run("config", "check", "--config", x.config, "--kubeconfig", x.kubeconfig, "--cluster")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "does not grant get, list, watch on configmaps in all of the cluster: it can't be cached")
	require.Contains(t, string(r.Stdout), "server: "+cp.URL()+", "+report.Version)
	require.Regexp(t, `(?m)^configmaps +-.* cannot list resource "configmaps"`, string(r.Stdout))

	log, err := os.Open(audit)
	require.NoError(t, err)
	defer log.Close()
	seen := map[string]int{}
	for decoder := json.NewDecoder(log); decoder.More(); {
		var e struct{ Verb, UserAgent, RequestURI string }
		require.NoError(t, decoder.Decode(&e))
		if strings.HasPrefix(e.UserAgent, "snapcache") {
			review := e.Verb == "create" && e.RequestURI == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
			require.True(t, review || slices.Contains([]string{"get", "list", "watch"}, e.Verb), "%s %s", e.Verb, e.RequestURI)
			seen[e.Verb]++
		}
	}
	for _, verb := range []string{"get", "list", "watch", "create"} {
		require.Positive(t, seen[verb], "the audit log has no %s", verb)
	}
}
