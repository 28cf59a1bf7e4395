package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
)

// cluster is a control plane, with objects of each cached resource, and the agent that caches them.
type cluster struct {
	*plane
	server *target // the kube-apiserver
	cached *target // the agent
	agent  *agent

	resources []*resource
}

// newCluster makes the objects and starts the agent, so that it has listed some of the objects and
// watched the others come. When it returns, the agent has all of them.
func newCluster(ctx context.Context, on *plane, dir string) (*cluster, error) {
	server, err := newServerTarget(on.RESTConfig(controlplane.Admin))
	if err != nil {
		return nil, err
	}
	c := &cluster{plane: on, server: server, resources: cachedResources()}
	if err := c.fill(ctx, dir); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) fill(ctx context.Context, dir string) error {
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
	if c.agent, err = startAgent(c.ControlPlane, dir, c.resources); err != nil {
		return err
	}
	c.cached = c.agent.target
	if err := c.agent.await(ctx, c.resources); err != nil {
		return err
	}
	for _, r := range c.resources { // the agent keeps events only for clients
		if a, err := c.cached.askOnce(ctx, request{method: http.MethodGet, path: r.path("")}); err != nil || a.status != http.StatusOK {
			return fmt.Errorf("list %s from the agent: status %d: %w", r.name(), a.status, err)
		}
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
	return c.agent.Stop()
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
