package objects

import (
	"bytes"
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/test/controlplane"
)

const (
	directWorkers     = 32
	perNamespace      = 200 // of SeedDirect: a big shop
	directSeed        = 1
	namespaceRegistry = "/registry/namespaces/"
)

// SeedPodsDirect is [SeedDirect] of the pods of [Pod], with status and managedFields.
func SeedPodsDirect(ctx context.Context, cp *controlplane.ControlPlane, n int) error {
	return SeedDirect(ctx, cp, "pods", n, Pod)
}

// SeedDirect writes n objects of a resource into etcd in the apiserver's storage format, each in a
// revision of its own: 20,000 take seconds instead of minutes. The apiserver may be running or not; it
// takes the objects for those of another apiserver. They are made with seed 1, 200 a namespace, which
// is written too. A second call writes the same objects again.
func SeedDirect[T runtime.Object](ctx context.Context, cp *controlplane.ControlPlane, resource string, n int, fn func(namespace string, i int, seed int64) T) error {
	client, err := cp.EtcdClient()
	if err != nil {
		return fmt.Errorf("seed %s: %w", resource, err)
	}
	defer client.Close()
	namespaces := (n + perNamespace - 1) / perNamespace
	err = parallel(ctx, directWorkers, namespaces, func(ctx context.Context, i int) error {
		key := namespaceRegistry + Namespace(i)
		return put(ctx, client, key, namespaceObject(i, directSeed), clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
	})
	if err != nil {
		return fmt.Errorf("seed namespaces: %w", err)
	}
	err = parallel(ctx, directWorkers, n, func(ctx context.Context, i int) error {
		namespace := Namespace(i % namespaces)
		o := fn(namespace, i, directSeed)
		m, err := apimeta.Accessor(o)
		if err != nil {
			return err
		}
		return put(ctx, client, "/registry/"+resource+"/"+namespace+"/"+m.GetName(), o)
	})
	if err != nil {
		return fmt.Errorf("seed %s: %w", resource, err)
	}
	return nil
}

// storage encodes as the apiserver does: four magic bytes, then protobuf in an envelope with
// apiVersion and kind.
var storage = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// put stores an object if all conditions hold.
func put(ctx context.Context, client *clientv3.Client, key string, object runtime.Object, conditions ...clientv3.Cmp) error {
	var value bytes.Buffer
	if err := storage.Encode(object, &value); err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	if _, err := client.Txn(ctx).If(conditions...).Then(clientv3.OpPut(key, value.String())).Commit(); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return nil
}
