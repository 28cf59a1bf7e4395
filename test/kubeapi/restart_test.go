package kubeapi

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

var restartObjects = flag.Int("restart.objects", 2000, "how many objects the hub of TestHubRestart has")

const (
	restarts = 6

	// restartLimit is for the median of the times until a hub of manyObjects, or more, serves.
	restartLimit = time.Second
	manyObjects  = 100_000

	// restartMemory limits the memory of a hub that has just begun to serve, in bytes: it does not
	// depend on the number of objects.
	restartMemory = 32 << 20
)

// TestHubRestart restarts a hub of five collections, in turn by SIGTERM and SIGKILL. It measures the time
// from its start until each collection is listed, as most recent, and watches continue; and the memory
// that it has then, without the pages of its file.
func TestHubRestart(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	seedFour(t, cp, *restartObjects/4)
	h := &hub{site: newSiteOf(t, &plane{ControlPlane: cp}, resourcesNamed("pods.v1.", "configmaps.v1.", "secrets.v1.", "endpointslices.v1.discovery.k8s.io", "namespaces.v1."), func(s *site) {
		s.access = true
	})}
	h.awaitCaughtUp()
	config := restConfig(t, h.cached)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	s := &restarted{hub: h, host: config.Host, client: client}

	var took []time.Duration
	for i := range restarts {
		versions := map[*resource]string{}
		for _, r := range h.resources {
			versions[r] = s.version(r)
		}
		if i%2 == 0 {
			h.stop()
		} else {
			h.kill()
		}
		began := time.Now()
		h.start()
		var serving errgroup.Group
		for r, rv := range versions {
			serving.Go(func() error { return s.serves(r, rv) })
		}
		require.NoError(t, serving.Wait())
		took = append(took, time.Since(began))
		memory := int(harness.OwnMemory(h.agent.Cmd.Process.Pid))
		t.Logf("serves after %v, with %d MiB", took[i], memory>>20)
		require.Less(t, memory, restartMemory)
	}
	slices.Sort(took)
	t.Logf("%d objects: the median of %d restarts is %v", *restartObjects, restarts, took[restarts/2])
	if *restartObjects >= manyObjects {
		require.Less(t, took[restarts/2], restartLimit)
	}
}

// restarted is a hub and a client of it.
type restarted struct {
	*hub
	host   string
	client *http.Client
}

// seedFour writes n objects of each of four resources, and their namespaces.
func seedFour(t *testing.T, cp *controlplane.ControlPlane, n int) {
	t.Helper()
	require.NoError(t, objects.SeedPodsDirect(t.Context(), cp, n))
	require.NoError(t, objects.SeedDirect(t.Context(), cp, "configmaps", n, objects.ConfigMap))
	require.NoError(t, objects.SeedDirect(t.Context(), cp, "secrets", n, objects.Secret))
	require.NoError(t, objects.SeedDirect(t.Context(), cp, "endpointslices", n, objects.EndpointSlice))
}

// version returns the resourceVersion of a collection.
func (s *restarted) version(r *resource) string {
	s.t.Helper()
	answer, err := s.read(s.t.Context(), r.prefix()+"/"+r.Resource+"?limit=1")
	require.NoError(s.t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	var list metav1.PartialObjectMetadataList
	require.NoError(s.t, json.Unmarshal(body, &list), "%s", body)
	return list.ResourceVersion
}

// serves waits until a collection is listed, as most recent, and a watch of it continues.
func (s *restarted) serves(r *resource, rv string) error {
	path := r.prefix() + "/" + r.Resource
	for _, query := range []string{"?limit=500", "?watch=1&timeoutSeconds=1&resourceVersion=" + rv} {
		err := wait.PollUntilContextTimeout(s.t.Context(), 2*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			answer, err := s.read(ctx, path+query)
			if err != nil {
				return false, nil // it has not begun to listen
			}
			defer answer.Body.Close()
			recent := true
			if strings.HasPrefix(query, "?limit") {
				recent = answer.Header.Get("Age") == "0"
				_, err = io.Copy(io.Discard, answer.Body)
			}
			return answer.StatusCode == http.StatusOK && recent, err
		})
		if err != nil {
			return fmt.Errorf("%s%s: %w", path, query, err)
		}
	}
	return nil
}

// read requests a path of the agent.
func (s *restarted) read(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.host+path, nil)
	if err != nil {
		return nil, err
	}
	return s.client.Do(request)
}
