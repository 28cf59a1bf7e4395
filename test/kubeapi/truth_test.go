package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/test/controlplane"
)

// version is what is compared of an object as it was at a resourceVersion.
type version struct {
	key    string // namespace/name
	rv     uint64
	uid    string
	labels labels.Set
	fields fields.Set
	value  string // that of the annotation "value"
}

// sameObject reports whether two versions are equal but for the resourceVersion.
func (v version) sameObject(o version) bool {
	return v.key == o.key && v.uid == o.uid && v.value == o.value && maps.Equal(v.labels, o.labels) && maps.Equal(v.fields, o.fields)
}

// parseVersion reads an object. The resourceVersion may be absent, as in etcd.
func parseVersion(raw []byte) (version, error) {
	var o struct {
		Metadata struct {
			Namespace, Name, UID, ResourceVersion string
			Labels, Annotations                   map[string]string
		}
		Spec   struct{ NodeName string }
		Status struct{ Phase string }
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return version{}, err
	}
	m := o.Metadata
	v := version{key: m.Namespace + "/" + m.Name, uid: m.UID, labels: m.Labels, value: m.Annotations["value"]}
	v.fields = fields.Set{
		"metadata.namespace": m.Namespace, "metadata.name": m.Name,
		"spec.nodeName": o.Spec.NodeName, "status.phase": o.Status.Phase,
	}
	if m.ResourceVersion == "" {
		return v, nil
	}
	var err error
	v.rv, err = strconv.ParseUint(m.ResourceVersion, 10, 64)
	return v, err
}

// change is one change of an object. That of a deletion is the object before it, with the
// resourceVersion of the deletion.
type change struct {
	version
	deleted bool
}

// truth is every change of some resources, read from etcd: the kube-apiserver may be away, and no code
// of the product takes part.
type truth struct {
	mu      sync.Mutex
	changes map[string][]change           // by resource, in ascending order
	current map[string]map[string]version // by resource and key
	newest  uint64                        // up to which revision the changes are complete
	err     error
}

// recordTruth begins with the content of etcd, and follows it until the test ends. Resources are those
// of the core group, and custom ones.
func recordTruth(t *testing.T, cp *controlplane.ControlPlane, resources ...string) *truth {
	t.Helper()
	x := &truth{changes: map[string][]change{}, current: map[string]map[string]version{}}
	client, err := cp.EtcdClient()
	require.NoError(t, err)
	for _, resource := range resources {
		x.current[resource] = map[string]version{}
	}
	resp, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	require.NoError(t, err)
	for _, kv := range resp.Kvs {
		require.NoError(t, x.add(&clientv3.Event{Type: clientv3.EventTypePut, Kv: kv}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	events := client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
	var following sync.WaitGroup
	following.Go(func() {
		for resp := range events {
			x.follow(resp)
		}
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
		require.NoError(t, client.Close())
	})
	return x
}

func (x *truth) follow(resp clientv3.WatchResponse) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := resp.Err(); err != nil && x.err == nil {
		x.err = err
	}
	for _, e := range resp.Events {
		if err := x.add(e); err != nil && x.err == nil {
			x.err = fmt.Errorf("%s in etcd: %w", e.Kv.Key, err)
		}
	}
}

// storedForm decodes what the kube-apiserver writes into etcd.
var storedForm = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// add adds a change, if it is one of the resources.
func (x *truth) add(e *clientv3.Event) error {
	x.newest = uint64(e.Kv.ModRevision) //nolint:gosec // never negative
	resource, key, _ := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), "/registry/"), "/")
	if strings.Contains(resource, ".") { // the group of a custom resource
		resource, key, _ = strings.Cut(key, "/")
	}
	current, wanted := x.current[resource]
	if !wanted {
		return nil
	}
	c := change{version: current[key], deleted: true}
	delete(current, key)
	if e.Type == clientv3.EventTypePut {
		encoded := e.Kv.Value
		if !json.Valid(encoded) { // as custom resources are
			o, _, err := storedForm.Decode(encoded, nil, nil)
			if err != nil {
				return err
			}
			if encoded, err = json.Marshal(o); err != nil {
				return err
			}
		}
		v, err := parseVersion(encoded)
		if err != nil {
			return err
		}
		c = change{version: v}
	}
	c.rv = x.newest
	if !c.deleted {
		current[key] = c.version
	}
	x.changes[resource] = append(x.changes[resource], c)
	return nil
}

// complete waits until everything up to now is recorded, and returns the changes of each resource.
func (x *truth) complete(t *testing.T, cp *controlplane.ControlPlane) map[string][]change {
	t.Helper()
	revision, err := cp.Revision(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.err != nil || x.newest >= uint64(revision) //nolint:gosec // never negative
	}, patience, pollEvery, "etcd's changes do not come")
	x.mu.Lock()
	defer x.mu.Unlock()
	require.NoError(t, x.err)
	return maps.Clone(x.changes)
}
