package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/test/controlplane"
)

// Written is a change of an object, as etcd holds it: the kube-apiserver may be away, and no code of the product takes
// part.
type Written struct {
	Resource string // "configmaps", "widgets.example.com"; empty for a resource that was not asked for
	Key      string // "namespace/name"
	RV       int64
	JSON     []byte // without the resourceVersion; nil for a deletion
}

// ReadEtcd returns the objects that etcd holds of these resources, in the order in which they were written, and etcd's
// revision.
func ReadEtcd(t *testing.T, cp *controlplane.ControlPlane, resources []string) ([]Written, int64) {
	t.Helper()
	client, err := cp.EtcdClient()
	require.NoError(t, err)
	defer client.Close()
	resp, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	require.NoError(t, err)
	slices.SortFunc(resp.Kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) })
	var all []Written
	for _, kv := range resp.Kvs {
		w, err := written(&clientv3.Event{Type: clientv3.EventTypePut, Kv: kv}, resources)
		require.NoError(t, err)
		if w.Resource != "" {
			all = append(all, w)
		}
	}
	return all, resp.Header.Revision
}

// FollowEtcd calls each with all changes after a revision, until stop is called, or with an error.
func FollowEtcd(t *testing.T, cp *controlplane.ControlPlane, since int64, resources []string,
	each func(Written, error),
) (stop func()) {
	t.Helper()
	client, err := cp.EtcdClient()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	changes := client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithRev(since+1))
	var following sync.WaitGroup
	following.Go(func() {
		for resp := range changes {
			if err := resp.Err(); err != nil && ctx.Err() == nil {
				each(Written{}, err)
			}
			for _, e := range resp.Events {
				each(written(e, resources))
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		following.Wait()
		_ = client.Close() // the error of the watch
	})
	t.Cleanup(stop)
	return stop
}

// storedForm decodes the kube-apiserver's form of objects in etcd.
var storedForm = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

func written(e *clientv3.Event, resources []string) (w Written, err error) {
	w.Resource, w.Key, _ = strings.Cut(strings.TrimPrefix(string(e.Kv.Key), "/registry/"), "/")
	if group := w.Resource; strings.Contains(group, ".") {
		w.Resource, w.Key, _ = strings.Cut(w.Key, "/")
		w.Resource += "." + group
	}
	if !slices.Contains(resources, w.Resource) {
		w.Resource, w.Key = "", ""
	}
	if w.RV = e.Kv.ModRevision; w.Resource == "" || e.Type != clientv3.EventTypePut {
		return w, nil
	}
	if w.JSON = e.Kv.Value; json.Valid(w.JSON) { // a custom resource
		return w, nil
	}
	o, _, err := storedForm.Decode(e.Kv.Value, nil, nil)
	if err == nil {
		w.JSON, err = json.Marshal(o)
	}
	if err != nil {
		return w, fmt.Errorf("%s in etcd: %w", e.Kv.Key, err)
	}
	return w, nil
}
