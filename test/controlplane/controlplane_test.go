package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

func clientOf(t *testing.T, cp *controlplane.ControlPlane, user string) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.RESTConfig(user))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestLifecycle runs one control plane through all operations; each part continues with the state of the
// part before.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	admin := clientOf(t, cp, controlplane.Admin)
	url := cp.URL()

	err := objects.Seed(t.Context(), cp, objects.SeedOptions{
		Pods: 12, ConfigMaps: 6, Secrets: 6, Services: 6, EndpointSlices: 6, Deployments: 6, Nodes: 3, Widgets: 6, Namespaces: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("seeded", func(t *testing.T) { testSeeded(t, cp) })
	t.Run("users", func(t *testing.T) { testUsers(t, cp) })
	t.Run("totals", func(t *testing.T) { testTotals(t, cp, admin) })
	t.Run("future", func(t *testing.T) { testFuture(t, cp, admin) })
	t.Run("restart", func(t *testing.T) { testRestart(t, cp, admin) })
	t.Run("compact", func(t *testing.T) { testCompact(t, cp, admin) })
	t.Run("kill", func(t *testing.T) { testKill(t, cp, admin) })
	t.Run("save and restore", func(t *testing.T) { testRestore(t, cp, admin) })
	if cp.URL() != url {
		t.Errorf("the address changed from %s to %s", url, cp.URL())
	}
}

func testSeeded(t *testing.T, cp *controlplane.ControlPlane) {
	for resource, want := range map[string]int{
		"pods": 12, "configmaps": 6, "secrets": 6, "endpointslices": 6, "deployments": 6, "nodes": 3, "widgets": 6,
	} {
		out, err := cp.Kubectl(t.Context(), "get", resource, "-A", "-o", "name")
		if err != nil {
			t.Fatal(err)
		}
		// The apiserver has a configmap of its own in kube-system.
		if got := bytes.Count(out, []byte("\n")); got < want || resource != "configmaps" && got != want {
			t.Errorf("%d %s, want %d", got, resource, want)
		}
	}
	out, err := cp.Kubectl(t.Context(), "get", "pods", "-A", "-o", "jsonpath={.items[*].status.phase}")
	if err != nil || strings.Count(string(out), "Running") != 12 {
		t.Errorf("phases of the pods: %s (%v)", out, err)
	}
	out, err = cp.Kubectl(t.Context(), "get", "widgets", "-A", "-o", "jsonpath={.items[*].status.serial}")
	if err != nil || len(strings.Fields(string(out))) != 6 {
		t.Errorf("serials of the widgets: %s (%v)", out, err)
	}
	if _, err := cp.Kubectl(t.Context(), "get", "nothings"); err == nil || !strings.Contains(err.Error(), "nothings") {
		t.Errorf("kubectl of an unknown resource: %v, want what it printed", err)
	}
}

func testUsers(t *testing.T, cp *controlplane.ControlPlane) {
	for _, c := range []struct {
		user, resource string
		allowed        bool
	}{
		{controlplane.Admin, "secrets", true},
		{controlplane.Reader, "pods", true},
		{controlplane.Reader, "endpointslices", true},
		{controlplane.Reader, "widgets", true},
		{controlplane.Reader, "secrets", false},
		{controlplane.Stranger, "pods", false},
	} {
		kubeconfig, err := cp.Kubeconfig(c.user)
		if err != nil {
			t.Fatal(err)
		}
		_, err = cp.Kubectl(t.Context(), "--kubeconfig", kubeconfig, "get", c.resource, "-A")
		if allowed := err == nil; allowed != c.allowed {
			t.Errorf("%s gets %s: %v, want allowed %t", c.user, c.resource, err, c.allowed)
		}
	}
	if _, err := cp.Kubectl(t.Context(), "--kubeconfig", filepath.Join(cp.Dir(), "reader.kubeconfig"), "delete", "pods", "--all", "-A"); err == nil {
		t.Error("the reader deleted pods")
	}
	if _, err := cp.Kubeconfig("stranger"); !errors.Is(err, controlplane.ErrUnknownUser) {
		t.Errorf("kubeconfig of a stranger: %v", err)
	}
}

func testTotals(t *testing.T, cp *controlplane.ControlPlane, admin *kubernetes.Clientset) {
	before, err := cp.RequestTotals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := admin.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	after, err := cp.RequestTotals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	since := after.Since(before)
	if lists, gets := since.Count("LIST", "nodes"), since.CountCode("GET", "nodes", "200"); lists != 3 || gets != 0 {
		t.Errorf("%d lists and %d gets of nodes, want 3 and 0", lists, gets)
	}
	if opened := after.Open("nodes") - before.Open("nodes"); opened != 1 {
		t.Errorf("%d watches opened, want 1", opened)
	}
}

func testFuture(t *testing.T, cp *controlplane.ControlPlane, admin *kubernetes.Clientset) {
	revision, err := cp.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// client-go tries a 504 with Retry-After ten times more, 3 s each.
	err = admin.CoreV1().RESTClient().Get().Resource("pods").MaxRetries(0).VersionedParams(&metav1.ListOptions{
		Limit:                1,
		ResourceVersion:      strconv.FormatInt(revision+100_000, 10),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}, scheme.ParameterCodec).Do(t.Context()).Error()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusGatewayTimeout ||
		!apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("list at a future resource version: %v, want 504 with cause %s", err, metav1.CauseTypeResourceVersionTooLarge)
	}
}

func testRestart(t *testing.T, cp *controlplane.ControlPlane, admin *kubernetes.Clientset) {
	old := listRV(t, admin)
	keys, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "pods", 5)
	if err != nil {
		t.Fatal(err)
	}
	// While it runs, the events are in its window.
	w, err := admin.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: old})
	if err != nil {
		t.Fatal(err)
	}
	for n := range keys {
		if event := next(t, w); event.Type != watch.Modified {
			t.Fatalf("event %d is %s, want %s", n, event.Type, watch.Modified)
		}
	}
	w.Stop()

	if err := cp.StartAPIServer(t.Context()); !errors.Is(err, controlplane.ErrRunning) {
		t.Errorf("start of a running apiserver: %v", err)
	}
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, err = admin.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: old})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event := next(t, w)
	if status, ok := event.Object.(*metav1.Status); event.Type != watch.Error || !ok ||
		status.Code != http.StatusGone || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("watch from before the restart: %s %v, want 410 Expired", event.Type, event.Object)
	}
}

func testCompact(t *testing.T, cp *controlplane.ControlPlane, admin *kubernetes.Clientset) {
	old := listRV(t, admin)
	exact := metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 1}
	if _, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "configmaps", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Pods("").List(t.Context(), exact); err != nil {
		t.Errorf("list of the past before the compaction: %v", err)
	}
	if err := cp.CompactEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The apiserver may have past events in memory, until it is restarted.
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Pods("").List(t.Context(), exact); !apierrors.IsResourceExpired(err) {
		t.Errorf("list of the past after the compaction: %v, want 410 Expired", err)
	}
}

func testKill(t *testing.T, cp *controlplane.ControlPlane, admin *kubernetes.Clientset) {
	if err := cp.KillAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a killed apiserver answered")
	}
	if err := cp.KillEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cp.StartAPIServer(t.Context()); !errors.Is(err, controlplane.ErrStopped) {
		t.Errorf("start of the apiserver without etcd: %v", err)
	}
	if err := cp.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods, err := admin.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 12 {
		t.Errorf("%d pods after the kill, want 12 (%v)", len(pods.Items), err)
	}
}

func testRestore(t *testing.T, cp *controlplane.ControlPlane, admin *kubernetes.Clientset) {
	saved := filepath.Join(t.TempDir(), "saved")
	if err := cp.SaveEtcd(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	before, err := cp.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("late-%d", i)}}
		if _, err := admin.CoreV1().ConfigMaps(objects.Namespace(0)).Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	after, err := cp.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.RestoreEtcd(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	restored, err := cp.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if restored < before || restored >= after {
		t.Errorf("revision %d after the restore, want it from %d to below %d", restored, before, after)
	}
	_, err = admin.CoreV1().ConfigMaps(objects.Namespace(0)).Get(t.Context(), "late-0", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a configmap from after the save: %v, want not found", err)
	}

	// The same data in another control plane beside this one.
	other := harness.ControlPlane(t, controlplane.Options{EtcdData: saved})
	pods, err := clientOf(t, other, controlplane.Reader).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 12 {
		t.Errorf("%d pods in the copy, want 12 (%v)", len(pods.Items), err)
	}
}

// TestStartInExistingDirectory stops a control plane in a given folder and starts it there again.
func TestStartInExistingDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop()
	if _, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir}); !errors.Is(err, controlplane.ErrLocked) {
		t.Errorf("second start in one folder: %v", err)
	}
	if err := objects.Seed(t.Context(), first, objects.SeedOptions{Namespaces: 2, ConfigMaps: 2}); err != nil {
		t.Fatal(err)
	}
	config := first.RESTConfig(controlplane.Reader)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := harness.ControlPlane(t, controlplane.Options{Dir: dir})
	if again := second.RESTConfig(controlplane.Reader); again.BearerToken != config.BearerToken || !bytes.Equal(again.CAData, config.CAData) {
		t.Error("the credentials changed")
	}
	list, err := clientOf(t, second, controlplane.Reader).CoreV1().ConfigMaps(objects.Namespace(1)).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("%d configmaps after the second start, want 1 (%v)", len(list.Items), err)
	}
}

// TestBadFlag checks that the error of a server that ends by itself contains the reason.
func TestBadFlag(t *testing.T) {
	t.Parallel()
	_, err := controlplane.Start(t.Context(), controlplane.Options{APIServerArgs: []string{"--no-such-flag"}})
	if !errors.Is(err, controlplane.ErrExited) || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("start with an unknown flag: %v", err)
	}
}

func listRV(t *testing.T, client *kubernetes.Clientset) string {
	t.Helper()
	list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}

// next returns the next event of a watch.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		return event
	case <-ctx.Done():
		t.Fatal("no event")
		return watch.Event{}
	}
}
