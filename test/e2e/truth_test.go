package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane"
)

// registries maps the collections of a long run to etcd's prefixes of their objects.
var registries = map[string]string{
	"configmaps":          "/registry/configmaps/",
	"pods":                "/registry/pods/",
	"widgets.example.com": "/registry/example.com/widgets/",
}

// truth is everything that etcd ever held of some collections, read from etcd directly, without the
// apiserver or any code of the product. If etcd is restored from a save, the history forks: a new
// history begins, equal to the old one up to the save.
type truth struct {
	t  *testing.T
	cp *controlplane.ControlPlane

	mu     sync.Mutex
	forks  []*fork
	cancel func()
}

// fork is the history from one restore to the next.
type fork struct {
	first     map[string]map[string]uint64 // collection, key, digest
	since     int64                        // revision of first
	events    []written
	inherited int   // how many of the events come from the previous history
	newest    int64 // revision up to which events are complete
	broken    error
}

// written is one change. Its digest is 0 for a deletion.
type written struct {
	rv              int64
	collection, key string
	digest          uint64
}

// recordTruth starts with the content of etcd, and follows it until the test ends.
func recordTruth(t *testing.T, cp *controlplane.ControlPlane) *truth {
	t.Helper()
	x := &truth{t: t, cp: cp}
	client, err := cp.EtcdClient()
	require.NoError(t, err)
	defer client.Close()
	resp, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	require.NoError(t, err)
	f := &fork{first: make(map[string]map[string]uint64), since: resp.Header.Revision, newest: resp.Header.Revision}
	for id := range registries {
		f.first[id] = make(map[string]uint64)
	}
	for _, kv := range resp.Kvs {
		if id, key := collectionOf(string(kv.Key)); id != "" {
			f.first[id][key] = x.digest(id, kv.Value, kv.ModRevision)
		}
	}
	x.forks = []*fork{f}
	x.follow(f)
	t.Cleanup(func() { x.cancel() })
	return x
}

// collectionOf returns the collection and the key of the object under an etcd key.
func collectionOf(name string) (id, key string) {
	for id, prefix := range registries {
		if key, ok := strings.CutPrefix(name, prefix); ok {
			return id, key
		}
	}
	return "", ""
}

// follow records the events after f's newest revision.
func (x *truth) follow(f *fork) {
	client, err := x.cp.EtcdClient()
	require.NoError(x.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	x.cancel = sync.OnceFunc(func() {
		cancel()
		<-done
		client.Close()
	})
	events := client.Watch(clientv3.WithRequireLeader(ctx), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(f.newest+1))
	go func() {
		defer close(done)
		for resp := range events {
			x.mu.Lock()
			if err := resp.Err(); err != nil && ctx.Err() == nil {
				f.broken = err
			}
			for _, e := range resp.Events {
				f.newest = e.Kv.ModRevision
				id, key := collectionOf(string(e.Kv.Key))
				if id == "" {
					continue
				}
				w := written{rv: e.Kv.ModRevision, collection: id, key: key}
				if e.Type == clientv3.EventTypePut {
					w.digest = x.digest(id, e.Kv.Value, e.Kv.ModRevision)
				}
				f.events = append(f.events, w)
			}
			x.mu.Unlock()
		}
	}()
}

// await waits until everything up to a revision is recorded.
func (x *truth) await(rv int64) {
	x.t.Helper()
	poll(x.t, fmt.Sprintf("etcd's history is at %d", rv), nil, func(context.Context) (bool, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		f := x.forks[len(x.forks)-1]
		return f.newest >= rv, f.broken
	})
}

// end stops following, before etcd is restored. A write during the call may be lost from the truth.
func (x *truth) end() {
	x.t.Helper()
	x.await(x.revision())
	x.cancel()
}

// fork starts a history that equals the old one up to a revision.
func (x *truth) fork(rv int64) {
	x.t.Helper()
	x.mu.Lock()
	last := x.forks[len(x.forks)-1]
	f := &fork{first: last.first, since: last.since, newest: rv}
	for _, e := range last.events {
		if e.rv <= rv {
			f.events = append(f.events, e)
		}
	}
	f.inherited = len(f.events)
	x.forks = append(x.forks, f)
	x.mu.Unlock()
	x.follow(f)
}

// revision returns etcd's newest revision.
func (x *truth) revision() int64 {
	x.t.Helper()
	rev, err := x.cp.Revision(x.t.Context())
	require.NoError(x.t, err)
	return rev
}

// current returns the number of the current history.
func (x *truth) current() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.forks) - 1
}

// at returns the state of a collection in one history.
func (x *truth) at(fork int, id string, rv int64) map[string]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.forks[fork]
	state := maps.Clone(f.first[id])
	for _, e := range f.events {
		switch {
		case e.rv > rv:
			return state
		case e.collection != id:
		case e.digest == 0:
			delete(state, e.key)
		default:
			state[e.key] = e.digest
		}
	}
	return state
}

// length returns the number of changes in all histories.
func (x *truth) length() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, f := range x.forks {
		n += len(f.events) - f.inherited
	}
	return n
}

// requireState compares the stored objects of a collection with the histories, starting with the
// one that it belonged to before, and returns the one that it belongs to now.
func (x *truth) requireState(what, id, rv string, from int, got content) int {
	x.t.Helper()
	n, err := strconv.ParseInt(rv, 10, 64)
	require.NoError(x.t, err, "%s: %s", what, id)
	have := make(map[string]uint64, len(got))
	for key, o := range got {
		have[key] = x.digestObject(id, o)
	}
	current := x.current()
	if x.newestOf(current) < n && from == current {
		x.await(n)
	}
	var report []string
	for i := current; i >= from; i-- {
		if i == current && x.newestOf(i) < n {
			continue // not there yet: it can only be an earlier one
		}
		want := x.at(i, id, n)
		if maps.Equal(want, have) {
			return i
		}
		var wrong []string
		for key := range want {
			if have[key] == 0 {
				wrong = append(wrong, key+" is missing")
			} else if have[key] != want[key] {
				wrong = append(wrong, key+" differs")
			}
		}
		for key := range have {
			if want[key] == 0 {
				wrong = append(wrong, key+" should not be there")
			}
		}
		slices.Sort(wrong)
		report = append(report, fmt.Sprintf("history %d has %d objects there, of which %d are otherwise: %v", i, len(want), len(wrong), wrong[:min(len(wrong), 8)]))
	}
	x.t.Fatalf("%s: %s at %s has %d objects, which no history from %d to %d knows:\n%s", what, id, rv, len(have), from, current, strings.Join(report, "\n"))
	return 0
}

func (x *truth) newestOf(fork int) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.forks[fork].newest
}

// storedForm decodes what the apiserver writes into etcd.
var storedForm = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// digest returns the digest of an object as etcd holds it. Any goroutine may call it.
func (x *truth) digest(id string, value []byte, rv int64) uint64 {
	var o map[string]any
	var err error
	if id == "widgets.example.com" {
		err = json.Unmarshal(value, &o)
	} else {
		var typed runtime.Object
		if typed, _, err = storedForm.Decode(value, nil, nil); err == nil {
			o, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		}
	}
	if err != nil {
		x.t.Errorf("etcd's %s: %v", id, err)
		return 1
	}
	u := &unstructured.Unstructured{Object: o}
	u.SetResourceVersion(strconv.FormatInt(rv, 10))
	return x.digestObject(id, o)
}

// digestObject returns a digest of what does not depend on the encoder: types come from elsewhere,
// and empty fields are dropped.
func (x *truth) digestObject(id string, o map[string]any) uint64 {
	u := &unstructured.Unstructured{Object: o}
	u.SetManagedFields(nil)
	u.SetAPIVersion("")
	u.SetKind("")
	var typed any = o
	switch id {
	case "configmaps":
		typed = &corev1.ConfigMap{}
	case "pods":
		typed = &corev1.Pod{}
	}
	if id != "widgets.example.com" {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, typed); err != nil {
			x.t.Errorf("%s: %v", object.Key(u.GetNamespace(), u.GetName()), err)
		}
	}
	b, err := json.Marshal(typed)
	if err != nil {
		x.t.Error(err)
	}
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64() | 1
}
