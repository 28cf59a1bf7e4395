package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestUnusualObjects: thousands of objects that are deleted at once, objects near the limit of etcd's size, and names with
// colons and letters beyond ASCII, while the agent watches and in a second process. Nothing is listed twice.
func TestUnusualObjects(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	const many = 5000
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: many, Widgets: 4, Namespaces: 1}))
	const roles = "clusterroles.rbac.authorization.k8s.io"
	ids := []string{"configmaps", "widgets.example.com"}
	x := newSite(t, settings{
		kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: " + strings.Join(append(ids, roles), "\n- resource: "),
	})
	same := func(a *agent, lists int) {
		a.requireServers(cp, ids...)
		want := decodeList(t, harness.Kubectl(t, cp, "get", roles, "-o", "json"))
		a.awaitCaughtUp(map[string]string{roles: want.newest()})
		requireSame(t, roles, want, x.cached(roles))
		for _, id := range append(ids, roles) {
			require.EqualValues(t, lists, a.awaitStatus()[id].Lists, id)
		}
	}
	a := x.start()
	same(a, 1)

	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	configmaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(objects.Namespace(0))
	// A slow server gives up after its minute for a request. The namespace controller asks again too.
	for {
		err := configmaps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		list, listErr := configmaps.List(t.Context(), metav1.ListOptions{Limit: 1})
		require.NoError(t, listErr)
		if len(list.Items) == 0 {
			break
		}
		require.Error(t, err, "the server says that it deleted all")
	}
	createLarge(t, client)
	names := []string{"system:shop:reader:", "Größe:店:система", "with spaces, and commas"}
	for _, name := range names {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []any{}}}
		o.SetName(name)
		o.SetAnnotations(map[string]string{"note": "näher \u2028 \U0001F6D2 <&>"})
		_, err := client.Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}).
			Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	same(a, 1)
	require.GreaterOrEqual(t, a.changes("configmaps")["deleted"], many)
	for _, name := range names {
		require.Contains(t, string(x.must("get", roles, name, "-o", "json")), `"name": "`+name+`"`)
	}
	a.stop()

	a = x.start()
	same(a, 0)
	a.stop()
	x.must("check")
}

// createLarge creates widgets near the limit of etcd's size.
func createLarge(t *testing.T, client dynamic.Interface) {
	t.Helper()
	widgets := client.Resource(objects.WidgetResource).Namespace(objects.Namespace(0))
	for i := range 3 {
		o := objects.Widget(objects.Namespace(0), 100+i, 0)
		require.NoError(t, unstructured.SetNestedField(o.Object, strings.Repeat("large \u00e9 ", 1_400_000/9), "spec", "firmware"))
		_, err := widgets.Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// TestLargeResourceVersions moves a cluster to resourceVersions that a float64 can't hold, as a datastore in SQL may
// have them, or one that was restored again and again. The agent lists once, follows, and resumes after a restart.
func TestLargeResourceVersions(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 30, Namespaces: 1}))
	p := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	x := newSite(t, settings{kubeconfig: p.Kubeconfig, resources: "- resource: configmaps"})
	a := x.start()
	a.requireServers(cp, "configmaps")

	const beyond = 1<<53 + 1 // the first integer that a float64 can't hold
	saved := filepath.Join(t.TempDir(), "etcd")
	require.NoError(t, cp.SaveEtcdAhead(t.Context(), saved, beyond))
	require.NoError(t, cp.KillAPIServer(t.Context()))
	require.NoError(t, cp.RestoreEtcd(t.Context(), saved))
	touch := func() {
		_, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "configmaps", 7)
		require.NoError(t, err)
	}
	touch()
	a.requireServers(cp, "configmaps")
	a.await("the list is of the large versions", func(s *localapi.Status) string {
		if c := collections(s)["configmaps"]; compareRV(t)(c.ResourceVersion, "9007199254740993") < 0 {
			return "at " + c.ResourceVersion
		}
		return ""
	})
	since := a.awaitStatus()["configmaps"].ResourceVersion
	touch()
	a.requireServers(cp, "configmaps")
	require.Len(t, x.changes("--since", since).objects, 7)
	a.stop()

	p.Down()
	touch()
	a = x.start()
	p.Up()
	a.requireServers(cp, "configmaps")
	require.Zero(t, a.awaitStatus()["configmaps"].Lists)
	a.kill()
	x.must("check")
}
