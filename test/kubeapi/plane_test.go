package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// plane is a control plane with the definitions of the custom resources, and a client for the tests'
// objects.
type plane struct {
	*controlplane.ControlPlane
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// startPlane starts a control plane, with more arguments of its kube-apiserver.
func startPlane(ctx context.Context, args ...string) (*plane, error) {
	// The lease by which an apiserver identifies itself would change while answers are compared.
	args = append(args, "--feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false")
	cp, err := harness.StartControlPlane(ctx, controlplane.Options{APIServerArgs: args})
	if err != nil {
		return nil, err
	}
	p := &plane{ControlPlane: cp}
	if err := p.define(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return p, nil
}

// newPlane starts a control plane for one test.
func newPlane(t *testing.T, args ...string) *plane {
	t.Helper()
	p, err := startPlane(t.Context(), args...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	return p
}

// audited returns the path of an audit log, and the arguments with which a kube-apiserver writes it.
func audited(t *testing.T, dir string) (path string, args []string) {
	t.Helper()
	policy, path := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	require.NoError(t, os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}`), 0o600))
	return path, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + path}
}

func (p *plane) define(ctx context.Context) error {
	config := p.RESTConfig(controlplane.Admin)
	var err error
	if p.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	known, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	p.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(known))
	_, err = p.create(ctx, "definitions.yaml")
	return err
}

// create creates the objects of a file in testdata, with their status, and returns them.
func (p *plane) create(ctx context.Context, file string) ([]*unstructured.Unstructured, error) {
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
		made, err := p.createOne(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", file, o.GetKind(), o.GetName(), err)
		}
		all = append(all, made)
	}
}

func (p *plane) createOne(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if o.GetAnnotations()["big"] != "" { // too much for one read of a stream, and for one packet
		o.SetAnnotations(map[string]string{"big": strings.Repeat("0123456789<ä>", 10_000)})
	}
	objects, err := p.objectsOf(ctx, o)
	if err != nil {
		return nil, err
	}
	made, err := objects.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if o.GetKind() == "CustomResourceDefinition" {
		p.mapper.Reset()
		return made, p.awaitServed(ctx, made)
	}
	status, ok := o.Object["status"]
	if !ok {
		return made, nil
	}
	made.Object["status"] = status
	return objects.UpdateStatus(ctx, made, metav1.UpdateOptions{})
}

// awaitServed waits until each version of a definition is served.
func (p *plane) awaitServed(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return wait.PollUntilContextTimeout(ctx, pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		for _, v := range versions {
			gvr := schema.GroupVersionResource{Group: group, Version: v.(map[string]any)["name"].(string), Resource: plural}
			if _, err := p.client.Resource(gvr).List(ctx, metav1.ListOptions{}); err != nil {
				return false, nil
			}
		}
		return true, nil
	})
}

// objectsOf returns the client for objects of o's kind, in o's namespace.
func (p *plane) objectsOf(ctx context.Context, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := o.GroupVersionKind()
	mapping, err := p.mapper.RESTMappingWithContext(ctx, gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if o.GetNamespace() == "" {
		return p.client.Resource(mapping.Resource), nil
	}
	return p.client.Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
}

// read reads the objects of a resource.
func (p *plane) read(t *testing.T, of schema.GroupVersionResource) []*unstructured.Unstructured {
	t.Helper()
	list, err := p.client.Resource(of).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	all := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all
}
