package objects

import (
	"bytes"
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/test/controlplane"
)

const (
	directWorkers     = 32
	podsPerNamespace  = 200 // of SeedPodsDirect: a big shop
	directSeed        = 1
	namespaceRegistry = "/registry/namespaces/"
	podRegistry       = "/registry/pods/"
)

// SeedPodsDirect writes n pods into etcd in the apiserver's storage format, each in a revision of its
// own: 20,000 take seconds instead of minutes. The apiserver may be running or not; it takes the pods
// for those of another apiserver. The pods are those of [Pod] with seed 1, 200 a namespace, with
// status and managedFields. A second call writes the same pods again.
func SeedPodsDirect(ctx context.Context, cp *controlplane.ControlPlane, n int) error {
	client, err := cp.EtcdClient()
	if err != nil {
		return fmt.Errorf("seed pods: %w", err)
	}
	defer client.Close()
	namespaces := (n + podsPerNamespace - 1) / podsPerNamespace
	err = parallel(ctx, directWorkers, namespaces, func(ctx context.Context, i int) error {
		key := namespaceRegistry + Namespace(i)
		return put(ctx, client, key, namespaceObject(i, directSeed), clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
	})
	if err != nil {
		return fmt.Errorf("seed namespaces: %w", err)
	}
	err = parallel(ctx, directWorkers, n, func(ctx context.Context, i int) error {
		pod := Pod(Namespace(i%namespaces), i, directSeed)
		return put(ctx, client, podKey(pod), pod)
	})
	if err != nil {
		return fmt.Errorf("seed pods: %w", err)
	}
	return nil
}

func podKey(pod *corev1.Pod) string { return podRegistry + pod.Namespace + "/" + pod.Name }

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
