package library

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// followed is an informer with a durable store, and the calls of its handler.
type followed struct {
	*watched
	t     *testing.T
	c     kubernetes.Interface
	ns    string
	db    *bolt.DB
	marks int
}

// difference waits until the cache equals the server's state, and returns the handler's calls since
// the last difference.
func (f *followed) difference(what string) map[string][]string {
	f.t.Helper()
	var server []string
	same := func() bool {
		list, err := f.c.CoreV1().ConfigMaps(f.ns).List(f.t.Context(), metav1.ListOptions{})
		require.NoError(f.t, err)
		server = server[:0]
		for _, m := range list.Items {
			server = append(server, shown(&m))
		}
		slices.Sort(server)
		return f.HasSynced() && strings.HasPrefix(f.content()+"\n", strings.Join(server, "\n")+"\n")
	}
	require.Eventually(f.t, same, liveParityPatience, pollEvery, what)
	// The call for this object is the last.
	f.marks++
	mark := fmt.Sprint(f.marks)
	put(f.t, f.c, f.ns, "mark", mark, nil)
	h := f.handlers["only"]
	received := map[string][]string{}
	require.Eventually(f.t, func() bool {
		for _, call := range h.take() {
			name, _, _ := strings.Cut(call, "@")
			name = name[strings.LastIndexByte(name, ' ')+1:]
			if o, deleted := strings.CutPrefix(call, "delete "); deleted {
				call = gone(strings.TrimPrefix(o, "unknown "))
			}
			received[name] = append(received[name], call)
		}
		calls := received["mark"]
		return len(calls) > 0 && strings.HasSuffix(calls[len(calls)-1], "="+mark)
	}, liveParityPatience, pollEvery, what)
	delete(received, "mark")
	for _, calls := range received {
		for _, call := range calls {
			assert.Equal(f.t, f.marks == 2, strings.HasSuffix(call, "initial=true"), "%s: %s", what, call)
		}
	}
	return received
}

// gone returns a deletion without its resourceVersion, which differs between watch and list.
func gone(o string) string {
	name, rest, _ := strings.Cut(o, "@")
	_, rest, _ = strings.Cut(rest, " ")
	return "delete " + name + " " + rest
}

// at returns the server's state of an object, in the form of the handler's calls.
func (f *followed) at(name string) string {
	f.t.Helper()
	m, err := f.c.CoreV1().ConfigMaps(f.ns).Get(f.t.Context(), name, metav1.GetOptions{})
	require.NoError(f.t, err)
	return shown(m)
}

// listedFor returns the reason of the newest list.
func (f *followed) listedFor() store.Reason {
	f.t.Helper()
	v, err := f.db.View("configmaps")
	require.NoError(f.t, err)
	defer v.Close()
	return v.State().ListReason
}

// TestServerKilledAndRestored takes an informer with a durable store through the death of
// the apiserver, and through a restore of etcd from an older save. Each time its handler is called
// for the differences and for nothing else, and the cache equals the server's state.
func TestServerKilledAndRestored(t *testing.T) {
	cp := harness.ControlPlane(t, controlplane.Options{})
	c := harness.Clientset(t, cp.RESTConfig(controlplane.Admin))
	f := &followed{t: t, c: c, ns: "default", db: openStore(t, t.TempDir()), marks: 1}
	defer func() { require.NoError(t, f.db.Close()) }()
	lw := cache.NewFilteredListWatchFromClient(c.CoreV1().RESTClient(), "configmaps", f.ns, func(*metav1.ListOptions) {})
	f.watched = newWatched(informer.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{"value": byValue},
		informer.WithStore(f.db, "configmaps"), informer.WithScheme(scheme.Scheme)))
	h := &calls{}
	f.handlers["only"] = h
	var err error
	f.regs["only"], err = f.AddEventHandler(h)
	require.NoError(t, err)

	for _, name := range []string{"a", "b", "c", "d", "e", "mark"} {
		put(t, c, f.ns, name, "1", nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.RunWithContext(ctx)
	}()
	defer func() { cancel(); <-ended }()
	require.Len(t, f.difference("the first list"), 5)

	// The window of events is gone with the apiserver.
	a, b := f.at("a"), f.at("b")
	require.NoError(t, cp.KillAPIServer(t.Context()))
	etcd, err := cp.EtcdClient()
	require.NoError(t, err)
	defer etcd.Close()
	for range 5 { // for it to begin past the checkpoint
		_, err := etcd.Put(t.Context(), "/elsewhere", "x")
		require.NoError(t, err)
	}
	require.NoError(t, cp.StartAPIServer(t.Context()))
	put(t, c, f.ns, "a", "2", nil)
	remove(t, c, f.ns, "b")
	put(t, c, f.ns, "f", "1", nil)
	want := map[string][]string{
		"a": {"update " + a + " to " + f.at("a")},
		"b": {gone(b)},
		"f": {"add " + f.at("f") + " initial=false"},
	}
	require.Equal(t, want, f.difference("the apiserver was killed"))
	require.Equal(t, store.ReasonExpired, f.listedFor())

	// The restore undoes the changes from here on.
	saved := filepath.Join(t.TempDir(), "etcd")
	require.NoError(t, cp.SaveEtcd(t.Context(), saved))
	a, d := f.at("a"), f.at("d")
	for i := range 200 { // so that the server's own writes at its start do not come past it
		put(t, c, f.ns, "e", fmt.Sprint(i), nil)
	}
	put(t, c, f.ns, "a", "3", nil)
	remove(t, c, f.ns, "d")
	put(t, c, f.ns, "g", "1", nil)
	lostA, lostE, g := f.at("a"), f.at("e"), f.at("g")
	require.Len(t, f.difference("what will be lost"), 4)
	require.NoError(t, cp.KillAPIServer(t.Context())) // with a watch open it takes long to end by itself
	require.NoError(t, cp.RestoreEtcd(t.Context(), saved))
	want = map[string][]string{
		"a": {"update " + lostA + " to " + a},
		"d": {"add " + d + " initial=false"},
		"e": {"update " + lostE + " to " + f.at("e")},
		"g": {gone(g)},
	}
	require.Equal(t, want, f.difference("etcd was restored"))
	require.Equal(t, store.ReasonRVAhead, f.listedFor())

	remove(t, c, f.ns, "c")
	require.Len(t, f.difference("it goes on")["c"], 1)
}

// TestRestoredPastCheckpoint restores etcd while the network is cut, and writes until it is past the checkpoints. What
// the informer of LimitRanges knows is the same in both histories: it lists because another informer of its
// factory has the proof.
func TestRestoredPastCheckpoint(t *testing.T) {
	cp := harness.ControlPlane(t, controlplane.Options{})
	c := harness.Clientset(t, cp.RESTConfig(controlplane.Admin))
	network := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	config, err := clientcmd.BuildConfigFromFlags("", network.Kubeconfig)
	require.NoError(t, err)
	db := openStore(t, t.TempDir())
	defer func() { require.NoError(t, db.Close()) }()
	f, err := informer.NewFactory(informer.FactoryOptions{Config: config, Scheme: scheme.Scheme, Store: db, Namespace: "default"})
	require.NoError(t, err)
	maps, limits := f.InformerFor(&corev1.ConfigMap{}), f.InformerFor(&corev1.LimitRange{})
	limit := func(name string) {
		o := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := c.CoreV1().LimitRanges("default").Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	eventually := func(what string, ok func() bool) { t.Helper(); require.Eventually(t, ok, time.Minute, pollEvery, what) }
	has := func(i cache.SharedIndexInformer, key string) bool {
		return slices.Contains(i.GetStore().ListKeys(), key)
	}

	put(t, c, "default", "m", "1", nil)
	ctx, cancel := context.WithCancel(t.Context())
	f.StartWithContext(ctx)
	defer f.Shutdown()
	defer cancel()
	eventually("the first list", func() bool { return has(maps, "default/m") && limits.HasSynced() })
	saved := filepath.Join(t.TempDir(), "etcd")
	require.NoError(t, cp.SaveEtcd(t.Context(), saved))
	for i := range 200 {
		put(t, c, "default", "m", fmt.Sprint(i), nil)
	}
	limit("undone")
	eventually("the limit comes", func() bool { return has(limits, "default/undone") })
	require.NoError(t, c.CoreV1().LimitRanges("default").Delete(t.Context(), "undone", metav1.DeleteOptions{}))
	put(t, c, "default", "last", "1", nil)
	eventually("what will be lost", func() bool { return !has(limits, "default/undone") && has(maps, "default/last") })
	network.Down()
	require.NoError(t, cp.RestoreEtcd(t.Context(), saved))
	limit("new")
	for i := range 300 {
		put(t, c, "default", "other", fmt.Sprint(i), nil)
	}
	network.Up()
	eventually("the other history", func() bool { return has(maps, "default/other") && !has(maps, "default/last") })
	eventually("the limit of the other history", func() bool { return has(limits, "default/new") })
}
