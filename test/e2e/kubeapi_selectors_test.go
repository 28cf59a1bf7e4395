package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

var recordSelectors = flag.Bool("selectors.record", false, "record the answers of the kube-apiserver for kubeapi/internal/selector")

// selectorAnswers are the answers of a kube-apiserver to lists with selectors.
type selectorAnswers struct {
	Info        store.Info        `json:"info"`
	Description store.Description `json:"description"`
	Objects     []json.RawMessage `json:"objects,omitempty"`
	Requests    []selectorRequest `json:"requests"`
}

// selectorRequest is one list, with the keys of its objects or the message of its error.
type selectorRequest struct {
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`
	Keys          []string `json:"keys,omitempty"`
	Message       string   `json:"message,omitempty"`
}

// TestKubeAPISelectors lists every resource of a kube-apiserver with many selectors, good and bad, and
// compares the answers with the recorded ones, which the unit tests of the selectors use.
func TestKubeAPISelectors(t *testing.T) {
	cp := harness.ControlPlane(t, controlplane.Options{APIServerArgs: []string{
		"--runtime-config=api/all=true", "--feature-gates=ClusterTrustBundle=true,PodCertificateRequest=true",
	}})
	config := cp.RESTConfig(controlplane.Admin)
	created := createSelected(t, config)

	root := harness.Root(t)
	file := filepath.Join(root, "kubeapi/internal/selector/testdata/kube-apiserver.json")
	if *recordSelectors {
		var all []selectorAnswers
		for _, a := range listable(t, config) {
			a.ask(t, config, created)
			all = append(all, a)
		}
		b, err := json.MarshalIndent(all, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append(b, '\n'), 0o600))
		return
	}
	var recorded []selectorAnswers
	b := harness.ReadFile(t, file)
	require.NoError(t, json.Unmarshal(b, &recorded))
	served := listable(t, config)
	require.Len(t, served, len(recorded))
	for i, a := range served {
		require.Equal(t, recorded[i].Info, a.Info)
		a.ask(t, config, created)
		require.Equal(t, recorded[i].Description, a.Description)
		require.Equal(t, recorded[i].Requests, a.Requests, "%s", a.Info.GVR())
	}
}

// createSelected creates the objects, and returns their keys by group and resource.
func createSelected(t *testing.T, config *rest.Config) map[schema.GroupResource][]string {
	t.Helper()
	client := harness.Dynamic(t, config)
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, crd := range selectorObjects(t, "selectors-crds.yaml") {
		_, err := crds.Create(t.Context(), crd, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	missing := ""
	poll(t, "the custom resources are served", &missing, func(context.Context) (bool, error) {
		for version, want := range map[string]int{"example.com/v1": 2, "example.com/v1alpha1": 1} {
			list, err := disco.ServerResourcesForGroupVersion(version)
			if err != nil || len(list.APIResources) < want {
				missing = fmt.Sprint(version, err)
				return false, nil
			}
		}
		return true, nil
	})
	groups, err := restmapper.GetAPIGroupResources(disco)
	require.NoError(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	keys := make(map[schema.GroupResource][]string)
	for _, o := range selectorObjects(t, "selectors.yaml") {
		gvk := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		require.NoError(t, err)
		var into dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			into = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		got, err := into.Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err, "%s %s", gvk, o.GetName())
		if status, ok := o.Object["status"]; ok {
			got.Object["status"] = status
			_, err = into.UpdateStatus(t.Context(), got, metav1.UpdateOptions{})
			require.NoError(t, err, "status of %s %s", gvk, o.GetName())
		}
		key := object.Key(o.GetNamespace(), o.GetName())
		resource := mapping.Resource.GroupResource()
		keys[resource] = append(keys[resource], key)
		if resource.Resource == "events" { // one storage under two groups
			resource.Group = map[string]string{"": "events.k8s.io", "events.k8s.io": ""}[resource.Group]
			keys[resource] = append(keys[resource], key)
		}
	}
	// No controller ends its deletion.
	require.NoError(t, client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	return keys
}

// selectorObjects returns the objects of a file in testdata.
func selectorObjects(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer f.Close()
	var all []*unstructured.Unstructured
	for d := yaml.NewYAMLToJSONDecoder(f); ; {
		u := &unstructured.Unstructured{}
		err := d.Decode(&u.Object)
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all = append(all, u)
	}
}

// listable returns every resource that can be listed, in every version, without answers.
func listable(t *testing.T, config *rest.Config) []selectorAnswers {
	t.Helper()
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	_, lists, err := disco.ServerGroupsAndResources()
	require.NoError(t, err)
	var all []selectorAnswers
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			a := selectorAnswers{Info: store.Info{Group: gv.Group, Version: gv.Version, Resource: r.Name, Kind: r.Kind, Namespaced: r.Namespaced}}
			a.Info.ID = a.Info.GVR().GroupResource().String()
			all = append(all, a)
		}
	}
	for _, crd := range selectorObjects(t, "selectors-crds.yaml") {
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		require.NoError(t, err)
		for _, v := range versions {
			version := v.(map[string]any)
			at := slices.IndexFunc(all, func(a selectorAnswers) bool { return a.Info.ID == crd.GetName() && a.Info.Version == version["name"] })
			require.GreaterOrEqual(t, at, 0)
			d := store.Description{Custom: true}
			selectable, _, err := unstructured.NestedSlice(version, "selectableFields")
			require.NoError(t, err)
			for _, s := range selectable {
				d.SelectableFields = append(d.SelectableFields, s.(map[string]any)["jsonPath"].(string))
			}
			all[at].Description = d
		}
	}
	slices.SortFunc(all, func(a, b selectorAnswers) int { return cmp.Compare(a.Info.GVR().String(), b.Info.GVR().String()) })
	return all
}

// ask fills in the objects and the answers. Of the objects only the created ones count: the server
// makes some of its own, when it likes.
func (a *selectorAnswers) ask(t *testing.T, config *rest.Config, created map[schema.GroupResource][]string) {
	t.Helper()
	keys := created[a.Info.GVR().GroupResource()]
	a.Requests = selectorRequests(a.Info.Resource, len(keys) > 0)
	for i := range a.Requests {
		a.ask1(t, config, keys, &a.Requests[i])
	}
	if len(keys) == 0 {
		return
	}
	objects, message := list(t, config, a.Info, "", "")
	require.Empty(t, message)
	for _, o := range objects {
		if slices.Contains(keys, o.Key()) {
			raw, err := object.NewPrune(object.ManagedFields).Append(nil, o.Raw())
			require.NoError(t, err)
			a.Objects = append(a.Objects, raw)
		}
	}
	require.Len(t, a.Objects, len(keys), "%s", a.Info.ID)
}

func (a *selectorAnswers) ask1(t *testing.T, config *rest.Config, created []string, r *selectorRequest) {
	t.Helper()
	objects, message := list(t, config, a.Info, r.LabelSelector, r.FieldSelector)
	r.Message = message
	for _, o := range objects {
		if slices.Contains(created, o.Key()) {
			r.Keys = append(r.Keys, o.Key())
		}
	}
}

// list returns the objects that a list has, or the message of status 400.
func list(t *testing.T, config *rest.Config, info store.Info, labelSelector, fieldSelector string) ([]*object.Object, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	path := "/apis/" + info.APIVersion()
	if info.Group == "" {
		path = "/api/" + info.Version
	}
	query := url.Values{}
	if labelSelector != "" {
		query.Set("labelSelector", labelSelector)
	}
	if fieldSelector != "" {
		query.Set("fieldSelector", fieldSelector)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path+"/"+info.Resource+"?"+query.Encode(), nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var body struct {
		Message string
		Items   []json.RawMessage
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
	if resp.StatusCode == http.StatusBadRequest {
		require.NotEmpty(t, body.Message)
		return nil, body.Message
	}
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s labelSelector=%q fieldSelector=%q: %s", info.GVR(), labelSelector, fieldSelector, body.Message)
	var objects []*object.Object
	for _, raw := range body.Items {
		o, err := object.Parse(raw)
		require.NoError(t, err)
		objects = append(objects, o)
	}
	return objects, ""
}

// selectorRequests returns the lists of a resource: all of them if it has objects, else those for the
// names of the fields.
func selectorRequests(resource string, all bool) []selectorRequest {
	var requests []selectorRequest
	for _, s := range []string{"foo=bar", "metadata.name=none", "metadata.namespace=none", "spec.nodeName=none", "status.phase=none", "spec.signerName=none"} {
		requests = append(requests, selectorRequest{FieldSelector: s})
	}
	if !all {
		return requests
	}
	byLabel := []string{
		"app=web", "app==web", "app!=web", "app in (web,db)", "app in (web, )", "app notin (web)", "app", "!app",
		"app,!tier", "tier>1", "tier<3", "tier>-1,tier<2", "tier<0", "app=", "app!=", "app in ()", "app=web,tier=1",
		" app = web ", "example.com/zone", "example.com/zone=", "app=web,app=db", "app,",
	}
	byField := []string{
		"metadata.name=a", "metadata.name==a", "metadata.name!=a", "metadata.name=", "metadata.name!=",
		"metadata.name=a,metadata.name=b", "metadata.name=a,metadata.name!=a", "metadata.name!=a,metadata.name!=b",
		"metadata.namespace=shop", "metadata.namespace!=shop", "metadata.namespace=", "metadata.namespace=shop,metadata.name=a",
		",", "=", "!=", "metadata.name=a,,", "metadata.name=a%2Fb", "metadata.name=a/b", "metadata.namespace=shop/x",
	}
	if resource == "configmaps" {
		// What is the same for all resources: errors of the parsers.
		byLabel = append(byLabel, "tier>x", "a b", "app in", "app in (", "app in (a b)", "app in (a,,b)", "app in (,)", "app notin ()",
			"app=a b", "=x", ",", ",app", "app=web,,tier", "app=web,", "-bad=x", "app=-", "app=wéb", "!app=x", "!", "!!app", "app!",
			"app>=1", "(app)", "a/b/c=x", "/x=1", "Example.com/x=1", "app=x)", "app==", "app=="+strings.Repeat("x", 64),
			strings.Repeat("x", 64), "app in (a,b", "app inn (a)", "app in a", "tier>1,2", "tier>", "app=a=b", "in", "in in (in)",
			"app=-,-bad=x", "app in (-,_)", "app.=x", "x\ny", "app=\t")
		byField = append(byField, "foo", "=x", "!=x", "metadata.name=a=b", `metadata.name=a\,b`, `metadata.name=a\=b`, `metadata.name=a\\b`,
			`metadata.name=a\x`, `metadata.name=a\`, "zzz=1,foo=2", "foo,metadata.name=a", "foo=1,bar", "metadata.labels.app=x",
			" metadata.name=a", "metadata.name =a", "metadata.name= a", "name=a", "METADATA.NAME=a", "foo!bar", `foo"=1`,
			"metadata.name>a", "metadata.name in (a)", "metadata.name", "metadata.name===a", "metadata.name!==a", "a\\,b=c", "foo=\x00")
	}
	byField = append(byField, selectorsOf[resource]...)
	for _, s := range byLabel {
		requests = append(requests, selectorRequest{LabelSelector: s})
	}
	for _, s := range byField {
		requests = append(requests, selectorRequest{FieldSelector: s})
	}
	return append(requests,
		selectorRequest{LabelSelector: "app=web", FieldSelector: "metadata.name=a"},
		selectorRequest{LabelSelector: "app=web", FieldSelector: "foo=bar"},
		selectorRequest{LabelSelector: "a b", FieldSelector: "foo"},
		selectorRequest{LabelSelector: "app=-", FieldSelector: "foo=bar"})
}

// selectorsOf are the field selectors that only some resources have.
var selectorsOf = map[string][]string{
	"namespaces": {"status.phase=Active", "status.phase!=Active", "status.phase=Terminating", "name=shop"},
	"pods": {
		"spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=", "spec.host=n1", "spec.host!=n1,spec.nodeName!=", "spec.restartPolicy=Always",
		"spec.restartPolicy!=Always", "spec.schedulerName=other", "spec.schedulerName=default-scheduler", "spec.serviceAccountName=till",
		"spec.serviceAccountName=", "spec.hostNetwork=true", "spec.hostNetwork=false", "spec.hostNetwork=", "spec.hostNetwork!=true",
		"status.phase=Running", "status.phase=Pending", "status.phase!=Succeeded,status.phase!=Failed", "status.podIP=10.0.0.1",
		"status.podIP=", "status.podIP=fd00::1", "status.podIPs=10.0.0.1", "status.podIPs=", "status.podIPs!=", "status.nominatedNodeName=n1",
		"status.nominatedNodeName=", "status.hostIP=192.168.0.2", "spec.containers=x", "metadata.uid=x", "status.reason=x",
	},
	"events": append(append(referenceSelectors("involvedObject"), referenceSelectors("regarding")...),
		"reason=Killing", "reason=", `reason=a\,b\=c\\d`, "type=Warning", "type=", "source=kubelet", "source=scheduler", "source=",
		"source=example.com/driver", "reportingComponent=scheduler", "reportingComponent=", "reportingController=example.com/driver",
		"reportingController=", "source.component=kubelet", "note=text", "involvedObject.name=a,involvedObject.namespace=shop,involvedObject.uid=u-1",
		"deprecatedSource.component=kubelet", "action=Binding"),
	"nodes":                      {"spec.unschedulable=true", "spec.unschedulable=false", "spec.unschedulable=", "spec.unschedulable!=true", "spec.unschedulable=TRUE"},
	"secrets":                    {"type=Opaque", "type=kubernetes.io/basic-auth", "type!=Opaque", "type="},
	"services":                   {"spec.clusterIP=10.96.0.50", "spec.clusterIP=None", "spec.clusterIP!=None", "spec.clusterIP=", "spec.type=ClusterIP", "spec.type=ExternalName", "spec.type!=ExternalName"},
	"replicationcontrollers":     {"status.replicas=2", "status.replicas=0", "status.replicas=", "status.replicas!=0"},
	"replicasets":                {"status.replicas=0"},
	"jobs":                       {"status.successful=2", "status.successful=0", "status.successful=", "status.succeeded=2", "status.successful!=0"},
	"resourceslices":             {"spec.nodeName=n1", "spec.nodeName=", "spec.driver=example.com", "spec.driver!=example.com", "spec.pool.name=p"},
	"certificatesigningrequests": {"spec.signerName=example.com/signer", "spec.signerName!=example.com/signer", "spec.signerName=", "spec.username=x"},
	"clustertrustbundles":        {"spec.signerName=example.com/signer", "spec.signerName=", "spec.signerName!="},
	"tills": {
		`spec.model=x\,y`, "spec.model=", "spec.model=007", "spec.model=7", "spec.drawers=2", "spec.drawers=02", "spec.drawers=",
		"spec.drawers=-12345678901", "spec.locked=true", "spec.locked=false", "spec.locked=", "spec.locked!=true", "spec.place.floor=0",
		"spec.place.floor=", "spec.place=x", ".spec.model=007", "spec.model!=,spec.drawers=2",
	},
	"routes": {"spec.line=7", "spec.line=", "spec.line!=7"},
}

func referenceSelectors(path string) []string {
	var all []string
	for _, s := range []string{"kind=Pod", "kind!=Pod", "namespace=shop", "name=a", "uid=u-1", "uid=", "apiVersion=v1", "resourceVersion=7", "resourceVersion=", "fieldPath=spec.containers{c}", "other=x"} {
		all = append(all, fmt.Sprintf("%s.%s", path, s))
	}
	return all
}
