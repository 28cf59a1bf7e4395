package kubeapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
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
	for _, resource := range resources {
		resource, _, _ = strings.Cut(resource, ".")
		x.current[resource] = map[string]version{}
	}
	all, revision := harness.ReadEtcd(t, cp, resources)
	for _, w := range all {
		x.add(w, nil)
	}
	harness.FollowEtcd(t, cp, revision, resources, x.add)
	return x
}

// add adds a change, if it is one of the resources.
func (x *truth) add(w harness.Written, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	resource, _, _ := strings.Cut(w.Resource, ".") // without the group
	current := x.current[resource]
	c := change{version: current[w.Key], deleted: w.JSON == nil}
	if err == nil && !c.deleted {
		c.version, err = parseVersion(w.JSON)
	}
	if err != nil {
		x.err = cmp.Or(x.err, fmt.Errorf("%s %s in etcd: %w", w.Resource, w.Key, err))
		return
	}
	x.newest = uint64(w.RV) //nolint:gosec // never negative
	if resource == "" {
		return
	}
	c.rv = x.newest
	delete(current, w.Key)
	if !c.deleted {
		current[w.Key] = c.version
	}
	x.changes[resource] = append(x.changes[resource], c)
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
