package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/snapcache/snapcache/test/controlplane"
)

// cluster is a control plane, with objects of each cached resource, and the agent that caches them.
type cluster struct {
	server *target // the kube-apiserver
	cached *target // the agent
	agent  *agent

	resources []*resource

	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// newCluster makes the objects and starts the agent, so that it has listed some of the objects and
// watched the others come. When it returns, the agent has all of them.
func newCluster(ctx context.Context, cp *controlplane.ControlPlane, dir string) (*cluster, error) {
	config := cp.RESTConfig(controlplane.Admin)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	known, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	server, err := newServerTarget(config)
	if err != nil {
		return nil, err
	}
	c := &cluster{
		server: server, resources: cachedResources(), client: client,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(known)),
	}
	if err := c.fill(ctx, cp, dir); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) fill(ctx context.Context, cp *controlplane.ControlPlane, dir string) error {
	if _, err := c.create(ctx, "definitions.yaml"); err != nil {
		return err
	}
	for _, r := range c.resources {
		list, err := c.client.Resource(r.GroupVersionResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list %s: %w", r.name(), err)
		}
		r.before = list.GetResourceVersion()
	}
	_, err := c.create(ctx, "before.yaml")
	if err != nil {
		return err
	}
	if c.agent, err = startAgent(cp, dir, c.resources); err != nil {
		return err
	}
	c.cached = c.agent.target
	if err := c.agent.await(ctx, c.resources); err != nil {
		return err
	}
	if _, err := c.create(ctx, "objects.yaml"); err != nil {
		return err
	}
	if err := c.change(ctx); err != nil {
		return err
	}
	for _, r := range c.resources {
		if err := c.readObjects(ctx, r); err != nil {
			return err
		}
	}
	return c.agent.await(ctx, c.resources)
}

func (c *cluster) stop() error {
	if c.agent == nil {
		return nil
	}
	return c.agent.stop()
}

// create creates the objects of a file in testdata, with their status, and returns them.
func (c *cluster) create(ctx context.Context, file string) ([]*unstructured.Unstructured, error) {
	f, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		var document runtime.RawExtension
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(document.Raw); err != nil { // keeps integers, other than Decode
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		made, err := c.createOne(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", file, o.GetKind(), o.GetName(), err)
		}
		all = append(all, made)
	}
}

func (c *cluster) createOne(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if o.GetAnnotations()["big"] != "" { // too much for one read of a stream, and for one packet
		o.SetAnnotations(map[string]string{"big": strings.Repeat("0123456789<ä>", 10_000)})
	}
	objects, err := c.objectsOf(ctx, o)
	if err != nil {
		return nil, err
	}
	made, err := objects.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if o.GetKind() == "CustomResourceDefinition" {
		c.mapper.Reset()
		return made, c.awaitServed(ctx, made)
	}
	status, ok := o.Object["status"]
	if !ok {
		return made, nil
	}
	made.Object["status"] = status
	return objects.UpdateStatus(ctx, made, metav1.UpdateOptions{})
}

// awaitServed waits until each version of a definition is served.
func (c *cluster) awaitServed(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return wait.PollUntilContextTimeout(ctx, pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		for _, v := range versions {
			gvr := schema.GroupVersionResource{Group: group, Version: v.(map[string]any)["name"].(string), Resource: plural}
			if _, err := c.client.Resource(gvr).List(ctx, metav1.ListOptions{}); err != nil {
				return false, nil
			}
		}
		return true, nil
	})
}

// objectsOf returns the client for objects of o's kind, in o's namespace.
func (c *cluster) objectsOf(ctx context.Context, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := o.GroupVersionKind()
	mapping, err := c.mapper.RESTMappingWithContext(ctx, gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if o.GetNamespace() == "" {
		return c.client.Resource(mapping.Resource), nil
	}
	return c.client.Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
}

// change makes an object of each resource come into a selector's sight, leave it, return and vanish,
// and changes an object that stays. The resources' old is the first of these changes.
func (c *cluster) change(ctx context.Context) error {
	passing, err := c.create(ctx, "passing.yaml")
	if err != nil {
		return err
	}
	for _, label := range []string{"web", "db", "web"} {
		for _, o := range passing {
			objects, err := c.objectsOf(ctx, o)
			if err != nil {
				return err
			}
			patch := fmt.Sprintf(`{"metadata":{"labels":{"app":%q}}}`, label)
			changed, err := objects.Patch(ctx, o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil {
				return fmt.Errorf("change of %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			if r := c.resourceOf(o); r != nil && r.old == "" {
				r.old = changed.GetResourceVersion()
			}
		}
	}
	for _, o := range passing {
		objects, err := c.objectsOf(ctx, o)
		if err != nil {
			return err
		}
		if err := objects.Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// resourceOf returns the cached resource of which o is an object.
func (c *cluster) resourceOf(o *unstructured.Unstructured) *resource {
	mapping, err := c.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	for _, r := range c.resources {
		if err == nil && r.GroupVersionResource == mapping.Resource {
			return r
		}
	}
	return nil
}

// readObjects changes one object of the resource, if there is one, and reads the metadata of all.
func (c *cluster) readObjects(ctx context.Context, r *resource) error {
	objects := c.client.Resource(r.GroupVersionResource)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list %s: %w", r.name(), err)
	}
	r.newest = r.before
	for i, o := range list.Items {
		if i == 0 {
			var of dynamic.ResourceInterface = objects
			if o.GetNamespace() != "" {
				of = objects.Namespace(o.GetNamespace())
			}
			changed, err := of.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`), metav1.PatchOptions{})
			if err != nil {
				return fmt.Errorf("change of %s %s: %w", r.name(), o.GetName(), err)
			}
			r.newest = changed.GetResourceVersion()
		}
		r.objects = append(r.objects, metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()})
	}
	if r.old == "" {
		r.old = r.newest
	}
	return nil
}

// newServerTarget returns the kube-apiserver as the target of requests.
func newServerTarget(config *rest.Config) (*target, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, DisableCompression: true, IdleConnTimeout: time.Minute}
	return &target{name: "kube-apiserver", base: base, token: config.BearerToken, client: &http.Client{Transport: transport}}, nil
}
