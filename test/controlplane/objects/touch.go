package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// TouchAnnotation is the annotation that [Touch] sets to the current time.
const TouchAnnotation = "example.com/touched"

// touchWorkers is small, so that the order of the changes stays near the order of the keys.
const touchWorkers = 8

// Touch changes the annotation [TouchAnnotation] of n existing objects of a
// resource ("pods", "configmaps", "widgets", …), each once, and returns their
// keys, "namespace/name". It takes the first n in the order of their keys, and fails if there are
// fewer.
func Touch(ctx context.Context, config *rest.Config, resource string, n int) ([]string, error) {
	k, err := kindOf(resource)
	if err != nil {
		return nil, fmt.Errorf("touch: %w", err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("touch %s: %w", resource, err)
	}
	list, err := client.Resource(k.gvr).List(ctx, metav1.ListOptions{Limit: int64(n)})
	if err != nil {
		return nil, fmt.Errorf("touch %s: %w", resource, err)
	}
	if len(list.Items) < n {
		return nil, fmt.Errorf("touch %d %s: there are only %d", n, resource, len(list.Items))
	}
	keys := make([]string, n)
	err = parallel(ctx, touchWorkers, n, func(ctx context.Context, i int) error {
		item := list.Items[i].ObjectMeta
		keys[i] = key(item.Namespace, item.Name)
		patch, err := annotate(TouchAnnotation, strconv.FormatInt(time.Now().UnixNano(), 10))
		if err != nil {
			return err
		}
		_, err = client.Resource(k.gvr).Namespace(item.Namespace).Patch(ctx, item.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("touch %s: %w", resource, err)
	}
	return keys, nil
}

func annotate(name, value string) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}})
}

// key returns the key of an object in client-go's form: "namespace/name", or "name".
func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
