package kubeapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// churnEvery is the time between two operations of a churn.
const churnEvery = 15 * time.Millisecond

// churn changes configmaps and pods in two namespaces until a context ends. The names are few, so that
// objects are often deleted, created again under their names, and labelled so that selectors lose
// and find them. A failure is no error: the kube-apiserver may be away.
type churn struct {
	client dynamic.Interface
	random *rand.Rand
	number int
}

func (c *churn) run(ctx context.Context) {
	ticker := time.NewTicker(churnEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		of := []schema.GroupVersionResource{configMaps, pods}[c.random.IntN(2)]
		objects := c.client.Resource(of).Namespace([]string{"left", "right"}[c.random.IntN(2)])
		name := fmt.Sprintf("o-%d", c.random.IntN(10))
		switch dice := c.random.IntN(100); {
		case dice < 12:
			c.remove(ctx, objects, name)
		case dice < 20:
			c.remove(ctx, objects, name)
			c.create(ctx, objects, of, name)
		case dice < 50 && of == pods:
			phase := []string{"Pending", "Running", "Succeeded"}[c.random.IntN(3)]
			c.patch(ctx, objects, of, name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
		default:
			c.patch(ctx, objects, of, name, fmt.Sprintf(`{"metadata":{"labels":{"tier":%s},"annotations":{"value":%q}}}`, c.tier(), c.value()))
		}
	}
}

// tier returns a label's value as JSON, or null for none.
func (c *churn) tier() string { return []string{`"a"`, `"b"`, "null"}[c.random.IntN(3)] }

func (c *churn) value() string {
	c.number++
	return fmt.Sprint(c.number)
}

func (c *churn) remove(ctx context.Context, objects dynamic.ResourceInterface, name string) {
	now := int64(0)
	_ = objects.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// patch changes an object, or creates it.
func (c *churn) patch(ctx context.Context, objects dynamic.ResourceInterface, of schema.GroupVersionResource, name, patch string, subresource ...string) {
	_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	if apierrors.IsNotFound(err) {
		c.create(ctx, objects, of, name)
	}
}

func (c *churn) create(ctx context.Context, objects dynamic.ResourceInterface, of schema.GroupVersionResource, name string) {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	o.SetName(name)
	o.SetLabels(map[string]string{"tier": []string{"a", "b", "c"}[c.random.IntN(3)]})
	o.SetAnnotations(map[string]string{"value": c.value()})
	if of == pods {
		o.SetKind("Pod")
		container := map[string]any{"name": "c", "image": "i"}
		o.Object["spec"] = map[string]any{"nodeName": fmt.Sprintf("edge-%d", c.random.IntN(2)), "containers": []any{container}}
	}
	_, _ = objects.Create(ctx, o, metav1.CreateOptions{})
}
