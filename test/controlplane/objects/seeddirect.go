package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
// takes the objects for another apiserver's. They are made with seed 1, 200 a namespace, which
// is written too. A second call writes the same objects again. A resource with a group is "group/resource",
// if the apiserver stores it so, as it does custom ones.
func SeedDirect[T runtime.Object](ctx context.Context, cp *controlplane.ControlPlane, resource string, n int, fn func(namespace string, i int, seed int64) T) error {
	client, err := cp.EtcdClient()
	if err != nil {
		return fmt.Errorf("seed %s: %w", resource, err)
	}
	defer client.Close()
	namespaces := (n + perNamespace - 1) / perNamespace
	err = parallel(ctx, directWorkers, namespaces, func(ctx context.Context, i int) error {
		key := namespaceRegistry + Namespace(i)
		_, err := put(ctx, client, key, namespaceObject(i, directSeed), clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		return err
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
		_, err = put(ctx, client, "/registry/"+resource+"/"+namespace+"/"+m.GetName(), o)
		return err
	})
	if err != nil {
		return fmt.Errorf("seed %s: %w", resource, err)
	}
	return nil
}

// storage encodes built-in objects as the apiserver does: four magic bytes, then protobuf in an
// envelope with apiVersion and kind.
var storage = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// put stores an object if all conditions hold, and returns its revision; 0 if they don't.
func put(ctx context.Context, client *clientv3.Client, key string, object runtime.Object, conditions ...clientv3.Cmp) (revision int64, err error) {
	var encoder runtime.Encoder = storage
	if _, custom := object.(*unstructured.Unstructured); custom {
		encoder = unstructured.UnstructuredJSONScheme
	}
	var value bytes.Buffer
	if err := encoder.Encode(object, &value); err != nil {
		return 0, fmt.Errorf("encode %s: %w", key, err)
	}
	done, err := client.Txn(ctx).If(conditions...).Then(clientv3.OpPut(key, value.String())).Commit()
	if err != nil {
		return 0, fmt.Errorf("put %s: %w", key, err)
	}
	if done.Succeeded {
		revision = done.Header.Revision
	}
	return revision, nil
}

// TouchDirect sets an annotation of an object of [SeedDirect] in etcd, so that the apiserver only
// follows the change, and returns its resourceVersion. It does not change managedFields.
func TouchDirect(ctx context.Context, client *clientv3.Client, resource, key, annotation, value string) (string, error) {
	path := "/registry/" + resource + "/" + key
	for {
		read, err := client.Get(ctx, path)
		if err == nil && len(read.Kvs) == 0 {
			err = errors.New("there is no such object")
		}
		if err != nil {
			return "", fmt.Errorf("touch %s: %w", path, err)
		}
		o, _, err := storage.Decode(read.Kvs[0].Value, nil, nil)
		if err != nil {
			return "", fmt.Errorf("touch %s: %w", path, err)
		}
		m, err := apimeta.Accessor(o)
		if err != nil {
			return "", fmt.Errorf("touch %s: %w", path, err)
		}
		all := m.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		all[annotation] = value
		m.SetAnnotations(all)
		revision, err := put(ctx, client, path, o, clientv3.Compare(clientv3.ModRevision(path), "=", read.Kvs[0].ModRevision))
		if err != nil {
			return "", err
		}
		if revision > 0 {
			return strconv.FormatInt(revision, 10), nil
		}
	}
}
