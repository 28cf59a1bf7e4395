package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// definitionPatience is how soon a change of a definition must be served. A change that waits for the
// next day's reading, or for the end of a watch, takes longer.
const definitionPatience = 30 * time.Second

var (
	definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	tillsResource       = schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "tills"}
)

// TestDefinitionChanges changes each field of a definition, and makes it again with other immutable
// ones. An agent that runs, one that was stopped meanwhile, and one without the right to read
// definitions must serve discovery, tables, selectors, paths and objects as the server does, soon.
func TestDefinitionChanges(t *testing.T) {
	t.Parallel()
	w := newDefinitionFixture(t)
	online, stopped, unread := w.site(controlplane.Admin), w.site(controlplane.Admin), w.site(controlplane.Stranger)
	running, unreading, first := online.start(), unread.start(), stopped.start()
	for _, x := range []*site{online, unread, stopped} {
		w.requireServed(t, "at first", x, x == unread)
	}
	first.stop()
	for _, change := range definitionChanges {
		if strings.HasSuffix(change.name, selectable) && minorVersion(t, w.cp) < 31 {
			continue // the server knows no such fields
		}
		t.Run(change.name, func(t *testing.T) {
			before := w.server(t)
			change.make(t, w)
			w.awaitServer(t, change.name, func(now definitionView) bool { return change.unseen || !assert.ObjectsAreEqual(before, now) })
			w.requireVerifyIsTrue(t, online)
			w.requireServed(t, "online", online, false)
			w.requireServed(t, "without rights", unread, true)
			a := stopped.start()
			w.requireServed(t, "after a restart", stopped, false)
			a.in(t).stop()
		})
	}
	// A kube-apiserver forgets the events of a resource when it serves it in another way.
	for reason := range nonZero(running.relists("tills.shop.example.com")) {
		require.Contains(t, []string{"initial", "expired", "schema-changed"}, reason)
	}
	running.stop()
	unreading.stop()
}

// definitionChange is a change of the definition of tills.
type definitionChange struct {
	name   string
	make   func(*testing.T, *definitionFixture)
	unseen bool // no answer of the server differs
}

// selectable ends the names of changes of selectable fields.
const selectable = " selectable fields"

// definitionChanges are the changes, each on top of those before it.
var definitionChanges = []definitionChange{
	patched("singular", `{"op":"replace","path":"/spec/names/singular","value":"drawer"}`),
	patched("short names", `{"op":"replace","path":"/spec/names/shortNames","value":["tl","dr"]}`),
	patched("categories", `{"op":"replace","path":"/spec/names/categories","value":["money"]}`),
	patched("list kind", `{"op":"replace","path":"/spec/names/listKind","value":"TillRegister"}`),
	patched("one more"+selectable, `{"op":"add","path":"/spec/versions/0/selectableFields/-","value":{"jsonPath":".spec.owner"}}`),
	patched("other"+selectable, `{"op":"replace","path":"/spec/versions/0/selectableFields","value":[{"jsonPath":".spec.owner"}]}`),
	patched("no"+selectable, `{"op":"remove","path":"/spec/versions/0/selectableFields"}`),
	patched("columns", `{"op":"replace","path":"/spec/versions/0/additionalPrinterColumns","value":[{"name":"Owner","type":"string","jsonPath":".spec.owner"}]}`),
	patched("no columns", `{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns"}`),
	patched("no subresource status", `{"op":"remove","path":"/spec/versions/0/subresources/status"}`),
	patched("subresource status", `{"op":"add","path":"/spec/versions/0/subresources/status","value":{}}`),
	unseen(patched("no subresource scale", `{"op":"remove","path":"/spec/versions/0/subresources/scale"}`)),
	patched("schema", `{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/note/default","value":"plain"}`),
	unseen(patched("conversion", `{"op":"add","path":"/spec/conversion","value":{"strategy":"Webhook","webhook":{
		"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/convert"}}}}`)),
	patched("no conversion", `{"op":"replace","path":"/spec/conversion","value":{"strategy":"None"}},
		{"op":"replace","path":"/spec/names/singular","value":"till"}`),
	unseen(patched("stored version", `{"op":"replace","path":"/spec/versions/0/storage","value":false},
		{"op":"replace","path":"/spec/versions/1/storage","value":true}`)),
	recreated("the same again", "Till", "Namespaced"),
	recreated("scope", "Till", "Cluster"),
	recreated("the first scope", "Till", "Namespaced"),
	recreated("kind", "Register", "Namespaced"),
	recreated("kind and scope", "Till", "Cluster"),
}

func patched(name, operations string) definitionChange {
	return definitionChange{name: name, make: func(t *testing.T, w *definitionFixture) {
		_, err := w.client.Resource(definitionsResource).Patch(t.Context(), "tills.shop.example.com", types.JSONPatchType, []byte("["+operations+"]"), metav1.PatchOptions{})
		require.NoError(t, err)
	}}
}

func unseen(c definitionChange) definitionChange {
	c.unseen = true
	return c
}

// recreated deletes the definition and makes it again, with an object of the same name.
func recreated(name, kind, scope string) definitionChange {
	return definitionChange{name: name, make: func(t *testing.T, w *definitionFixture) {
		definitions := w.client.Resource(definitionsResource)
		d, err := definitions.Get(t.Context(), "tills.shop.example.com", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, definitions.Delete(t.Context(), d.GetName(), metav1.DeleteOptions{}))
		poll(t, "the definition is gone", nil, func(ctx context.Context) (bool, error) {
			_, err := definitions.Get(ctx, d.GetName(), metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
		d.Object["metadata"] = map[string]any{"name": d.GetName()}
		delete(d.Object, "status")
		require.NoError(t, unstructured.SetNestedField(d.Object, kind, "spec", "names", "kind"))
		require.NoError(t, unstructured.SetNestedField(d.Object, kind+"List", "spec", "names", "listKind"))
		require.NoError(t, unstructured.SetNestedField(d.Object, scope, "spec", "scope"))
		_, err = definitions.Create(t.Context(), d, metav1.CreateOptions{})
		require.NoError(t, err)
		namespace := "default"
		if scope == "Cluster" {
			namespace = ""
		}
		w.createTill(kind, namespace)
	}}
}

// definitionFixture is a control plane with a till.
type definitionFixture struct {
	t      *testing.T
	cp     *controlplane.ControlPlane
	client dynamic.Interface
	http   *http.Client
}

func newDefinitionFixture(t *testing.T) *definitionFixture {
	t.Helper()
	cp := harness.ControlPlane(t, controlplane.Options{})
	createTills(t, cp)
	config := cp.RESTConfig(controlplane.Admin)
	client := harness.Dynamic(t, config)
	plain, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	typed := harness.Clientset(t, config)
	role := metav1.ObjectMeta{Name: "tills"}
	_, err = typed.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: role, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"shop.example.com"}, Resources: []string{"tills"}, Verbs: []string{"get", "list", "watch"},
	}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = typed.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: role, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{cp.Subject(controlplane.Stranger)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w := &definitionFixture{t: t, cp: cp, client: client, http: plain}
	w.createTill("Till", "default")
	return w
}

// createTill creates a till, once tills of that kind are served.
func (w *definitionFixture) createTill(kind, namespace string) {
	w.t.Helper()
	till := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "shop.example.com/v1", "kind": kind, "metadata": map[string]any{"name": "one"},
		"spec": map[string]any{"size": int64(3), "owner": "ann"},
	}}
	var tills dynamic.ResourceInterface = w.client.Resource(tillsResource)
	if namespace != "" {
		tills = w.client.Resource(tillsResource).Namespace(namespace)
	}
	missing := ""
	poll(w.t, "a till is created", &missing, func(ctx context.Context) (bool, error) {
		_, err := tills.Create(ctx, till, metav1.CreateOptions{})
		if err != nil {
			missing = err.Error()
		}
		return err == nil || apierrors.IsAlreadyExists(err), nil
	})
}

// site makes the directory of an agent of a user that serves the Kubernetes API on a socket.
func (w *definitionFixture) site(user string) *site {
	x := newSite(w.t, settings{kubeconfig: harness.Kubeconfig(w.t, w.cp, user), resources: "- resource: tills.shop.example.com"})
	x.configure(settings{
		kubeconfig: x.kubeconfig, resources: "- resource: tills.shop.example.com",
		more: "kubernetesAPI: {socket: " + x.dir + "/kube.sock}",
	})
	return x
}

// definitionView has the answers that depend on a definition, by request.
type definitionView map[string]string

// definitionRequests are the requests whose answers are compared. Those after a # have a form.
var definitionRequests = []string{
	"/apis/shop.example.com/v1",
	"/apis/shop.example.com/v1/tills",
	"/apis/shop.example.com/v1/tills#Table",
	"/apis/shop.example.com/v1/tills?fieldSelector=spec.size=3",
	"/apis/shop.example.com/v1/tills?fieldSelector=spec.owner=ann",
	"/apis/shop.example.com/v1/tills?fieldSelector=spec.owner=bob",
	"/apis/shop.example.com/v1/tills?fieldSelector=metadata.namespace=default",
	"/apis/shop.example.com/v1/tills/one",
	"/apis/shop.example.com/v1/tills/one/status",
	"/apis/shop.example.com/v1/namespaces/default/tills",
	"/apis/shop.example.com/v1/namespaces/default/tills/one",
	"/apis/shop.example.com/v1/namespaces/default/tills/one/status",
}

// withoutDefinition returns the part of a view that does not need the right to read definitions: all
// names, and which paths have the object. Its form may be that of another schema.
func withoutDefinition(view definitionView) definitionView {
	names := definitionView{}
	for request, answer := range view {
		switch {
		case strings.HasSuffix(request, "/v1"):
			names[request] = answer
		case !strings.Contains(request, "fieldSelector=spec."):
			names[request], _, _ = strings.Cut(answer, " ")
		}
	}
	return names
}

func (w *definitionFixture) server(t *testing.T) definitionView {
	t.Helper()
	view, err := readDefinitionView(t.Context(), w.http, w.cp.URL())
	require.NoError(t, err)
	return view
}

// awaitServer waits until the server's own documents and handlers have a change.
func (w *definitionFixture) awaitServer(t *testing.T, what string, changed func(definitionView) bool) {
	t.Helper()
	var last definitionView
	same := 0
	poll(t, "the server serves the change: "+what, nil, func(ctx context.Context) (bool, error) {
		now, err := readDefinitionView(ctx, w.http, w.cp.URL())
		if err != nil {
			return false, nil
		}
		if same++; !assert.ObjectsAreEqual(last, now) {
			same = 0
		}
		last = now
		return same >= 10 && changed(now), nil
	})
}

// requireServed requires that an agent's answers become the server's.
func (w *definitionFixture) requireServed(t *testing.T, when string, x *site, namesOnly bool) {
	t.Helper()
	var want, have definitionView
	start := time.Now()
	err := wait.PollUntilContextTimeout(t.Context(), 5*pollEvery, definitionPatience, true, func(ctx context.Context) (bool, error) {
		served, err := readDefinitionView(ctx, socketClient(x.dir+"/kube.sock"), "http://agent")
		if err != nil {
			return false, nil
		}
		there, err := readDefinitionView(ctx, w.http, w.cp.URL())
		if err != nil {
			return false, err
		}
		have, want = served, there
		if namesOnly {
			have, want = withoutDefinition(have), withoutDefinition(want)
		}
		return assert.ObjectsAreEqual(want, have), nil
	})
	if err != nil {
		assert.Equal(t, want, have, when)
		t.Fatalf("%s: not served within %s: %v\n%s", when, definitionPatience, err, string(harness.ReadFile(x.t, x.log)))
	}
	t.Logf("%s: served after %s", when, time.Since(start).Round(time.Millisecond))
}

// requireVerifyIsTrue requires that a comparison that finds no difference is followed by the server's
// answers.
func (w *definitionFixture) requireVerifyIsTrue(t *testing.T, x *site) {
	t.Helper()
	if r := x.run("verify", "--config", x.config); r.Code != 0 {
		t.Logf("verify ended with %d: %s%s", r.Code, r.Stdout, r.Stderr)
		return
	}
	have, err := readDefinitionView(t.Context(), socketClient(x.dir+"/kube.sock"), "http://agent")
	require.NoError(t, err)
	require.Equal(t, w.server(t), have, "verify has found no difference")
}

func readDefinitionView(ctx context.Context, client *http.Client, address string) (definitionView, error) {
	view := definitionView{}
	for _, request := range definitionRequests {
		path, form, _ := strings.Cut(request, "#")
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
		if err != nil {
			return nil, err
		}
		if form != "" {
			r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		}
		resp, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(resp.Body)
		if err := resp.Body.Close(); err != nil {
			return nil, err
		}
		if err != nil {
			return nil, err
		}
		view[request] = fmt.Sprintf("%d %s", resp.StatusCode, comparableAnswer(body))
	}
	return view, nil
}

// comparableAnswer returns an answer without what differs between the server and a cache of it: managed
// fields, ages, the resourceVersion of lists, and what the cache does not serve.
func comparableAnswer(body []byte) string {
	var o map[string]any
	if json.Unmarshal(body, &o) != nil {
		return string(bytes.TrimSpace(body))
	}
	switch items, isList := o["items"].([]any); {
	case o["kind"] == "APIResourceList":
		o["resources"] = slices.DeleteFunc(o["resources"].([]any), func(x any) bool {
			r := x.(map[string]any)
			delete(r, "storageVersionHash")
			verbs := slices.DeleteFunc(r["verbs"].([]any), func(v any) bool { return !slices.Contains([]any{"get", "list", "watch"}, v) })
			slices.SortFunc(verbs, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
			r["verbs"] = verbs
			return r["name"] == "tills/scale"
		})
	case o["kind"] == "Table":
		for _, row := range o["rows"].([]any) {
			row := row.(map[string]any)
			delete(row["object"].(map[string]any)["metadata"].(map[string]any), "managedFields")
			for i, c := range o["columnDefinitions"].([]any) {
				if c.(map[string]any)["type"] == "date" {
					row["cells"].([]any)[i] = "an age"
				}
			}
		}
		delete(o, "metadata")
	case isList:
		for _, item := range items {
			delete(item.(map[string]any)["metadata"].(map[string]any), "managedFields")
		}
		delete(o, "metadata")
	case o["kind"] != "Status":
		delete(o["metadata"].(map[string]any), "managedFields")
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// TestScopeOfConfiguredNamespace makes a resource again without namespaces while an agent caches one of
// them. That is reported, all else is served, and the resource is cached once it has namespaces again.
func TestScopeOfConfiguredNamespace(t *testing.T) {
	t.Parallel()
	w := newDefinitionFixture(t)
	const id = "tills.shop.example.com@default"
	x := newSite(t, settings{
		kubeconfig: harness.Kubeconfig(t, w.cp, controlplane.Admin),
		resources:  "- {resource: tills.shop.example.com, namespaces: [default]}\n- resource: configmaps",
	})
	a := x.start()
	a.awaitCaughtUp(anywhere(id, "configmaps"))
	recreated("no namespaces", "Till", "Cluster").make(t, w)
	a.awaitProblem(id, "resources[0].namespaces: tills live in no namespace")
	a.awaitCaughtUp(anywhere("configmaps"))
	recreated("namespaces", "Till", "Namespaced").make(t, w)
	a.awaitCaughtUp(anywhere(id, "configmaps"))
	require.Contains(t, string(x.must("get", "tills", "-n", "default")), "one")
	a.stop()
}
