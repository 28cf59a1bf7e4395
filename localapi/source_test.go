package localapi

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// Every Source gives the same answers for the same content.
func TestSource(t *testing.T) {
	tests := []struct {
		name string
		test func(*testing.T, Source)
	}{
		{"status", testStatus},
		{"index", testIndex},
		{"keys", testKeys},
		{"objects", testObjects},
		{"bytes", testObjectBytes},
		{"sentinels", testSentinels},
		{"each fails", testEachFails},
		{"cancelled", testCancelled},
		{"never synced", testNeverSynced},
	}
	for _, s := range sources(t) {
		for _, tc := range tests {
			t.Run(s.name+"/"+tc.name, func(t *testing.T) { tc.test(t, s.src) })
		}
	}
}

func testStatus(t *testing.T, src Source) {
	status, err := src.Status(context.Background())
	require.NoError(t, err)
	require.Nil(t, status.Agent)
	require.Equal(t, "opened", status.Store.Verdict)
	require.Contains(t, []string{"bolt", "memory"}, status.Store.Type)

	var ids []string
	for _, c := range status.Collections {
		ids = append(ids, c.ID)
		require.Equal(t, "stored", c.Phase)
		require.False(t, c.CaughtUp)
	}
	require.Equal(t, []string{"configmaps", "empty.apps", "nodes", "pods@shop"}, ids)

	c := status.Collections[0]
	cp := storetest.Checkpoint(5)
	require.True(t, c.Synced)
	require.EqualValues(t, 5, c.Objects)
	require.Positive(t, c.Bytes)
	require.Equal(t, "5", c.ResourceVersion)
	require.Equal(t, cp.Cluster, c.Cluster)
	require.EqualValues(t, cp.ListReason, c.ListReason)
	require.WithinDuration(t, cp.LastList, c.LastList, 0)
	require.WithinDuration(t, cp.Proven(), c.Proven, 0)
	require.InDelta(t, time.Hour.Seconds(), c.AgeSeconds, 0.001)
	require.Equal(t, []string{"namespace", "app"}, c.Indexes)
	require.Equal(t, "ConfigMap", c.Kind)

	empty, pods := status.Collections[1], status.Collections[3]
	require.True(t, empty.Synced)
	require.Zero(t, empty.Objects)
	require.Equal(t, "apps", empty.Group)
	require.False(t, pods.Synced, "never synced differs from empty")
	require.Equal(t, "shop", pods.Namespace)
	require.True(t, pods.Proven.IsZero())
	require.Zero(t, pods.AgeSeconds)
}

func testIndex(t *testing.T, src Source) {
	all, err := allKeys(src, "configmaps", KeyQuery{})
	require.NoError(t, err)
	size := map[string]int64{}
	for _, k := range all {
		size[k.Key] = int64(k.Bytes)
	}
	values, err := indexOf(context.Background(), src, "configmaps", "namespace")
	require.NoError(t, err)
	require.Equal(t, []IndexValue{
		{"a", 2, size["a/one"] + size["a/two"]}, {"a-b", 1, size["a-b/one"]}, {"shop", 2, size["shop/one"] + size["shop/two"]},
	}, values)
	values, err = indexOf(context.Background(), src, "configmaps", "app")
	require.NoError(t, err)
	require.Equal(t, []IndexValue{{"till", 2, size["a/one"] + size["shop/one"]}, {"web", 1, size["a/two"]}}, values)
	values, err = indexOf(context.Background(), src, "nodes", "namespace")
	require.NoError(t, err)
	require.Len(t, values, 1)
	require.EqualValues(t, 2, values[0].Objects)
	require.Empty(t, values[0].Value)
	values, err = indexOf(context.Background(), src, "empty.apps", "namespace")
	require.NoError(t, err)
	require.Equal(t, []IndexValue{}, values)
}

func testKeys(t *testing.T, src Source) {
	for _, tc := range []struct {
		id   string
		q    KeyQuery
		want []string
	}{
		{"configmaps", KeyQuery{}, []string{"a-b/one", "a/one", "a/two", "shop/one", "shop/two"}},
		{"configmaps", KeyQuery{Index: "namespace", Value: "a"}, []string{"a/one", "a/two"}},
		{"configmaps", KeyQuery{Index: "namespace", Value: "absent"}, nil},
		{"configmaps", KeyQuery{Index: "namespace", Value: ""}, nil},
		{"configmaps", KeyQuery{Index: "app", Value: "till"}, []string{"a/one", "shop/one"}},
		{"configmaps", KeyQuery{Index: "app", Value: "absent"}, nil},
		{"nodes", KeyQuery{Index: "namespace", Value: ""}, []string{"edge-1", "edge-2"}},
		{"empty.apps", KeyQuery{}, nil},
		{"configmaps", KeyQuery{Namespace: "a"}, []string{"a/one", "a/two"}},
		{"configmaps", KeyQuery{Namespace: "a", NamePrefix: "t"}, []string{"a/two"}},
		{"configmaps", KeyQuery{NamePrefix: "o"}, []string{"a-b/one", "a/one", "shop/one"}},
		{"configmaps", KeyQuery{NamePrefix: "a"}, nil},
		{"configmaps", KeyQuery{Limit: 2}, []string{"a-b/one", "a/one"}},
		{"configmaps", KeyQuery{Limit: 2, After: "a/one"}, []string{"a/two", "shop/one"}},
		{"configmaps", KeyQuery{Limit: 2, After: "a/p"}, []string{"a/two", "shop/one"}},
		{"configmaps", KeyQuery{Limit: 2, After: "shop/one"}, []string{"shop/two"}},
		{"configmaps", KeyQuery{Limit: 2, NamePrefix: "o", After: "a-b/one"}, []string{"a/one", "shop/one"}},
		{"configmaps", KeyQuery{Namespace: "shop", After: "a/one"}, []string{"shop/one", "shop/two"}},
		{"configmaps", KeyQuery{Namespace: "a", After: "shop/one"}, nil},
		{"configmaps", KeyQuery{Index: "app", Value: "till", After: "a/one"}, []string{"shop/one"}},
		{"configmaps", KeyQuery{Index: "app", Value: "till", Limit: 1}, []string{"a/one"}},
		{"configmaps", KeyQuery{Index: "app", Value: "till", Namespace: "shop", NamePrefix: "o", Limit: 1}, []string{"shop/one"}},
		{"nodes", KeyQuery{Namespace: "a", NamePrefix: "edge-2"}, []string{"edge-2"}},
	} {
		keys, err := allKeys(src, tc.id, tc.q)
		require.NoError(t, err)
		var got []string
		for _, k := range keys {
			got = append(got, k.Key)
			require.NotEmpty(t, k.UID)
			require.NotEmpty(t, k.ResourceVersion)
			require.Positive(t, k.Bytes)
		}
		require.Equal(t, tc.want, got, "%v", tc)
	}
}

func testObjects(t *testing.T, src Source) {
	for _, tc := range []struct {
		id   string
		q    ObjectQuery
		want []string
	}{
		{"configmaps", ObjectQuery{}, []string{"a-b/one", "a/one", "a/two", "shop/one", "shop/two"}},
		{"configmaps", ObjectQuery{Namespace: "a"}, []string{"a/one", "a/two"}},
		{"configmaps", ObjectQuery{Namespace: "absent"}, nil},
		{"configmaps", ObjectQuery{LabelSelector: "app=till"}, []string{"a/one", "shop/one"}},
		{"configmaps", ObjectQuery{Namespace: "a", LabelSelector: "app in (till, web),!tier"}, []string{"a/one"}},
		{"configmaps", ObjectQuery{LabelSelector: "!app"}, []string{"a-b/one", "shop/two"}},
		{"nodes", ObjectQuery{}, []string{"edge-1", "edge-2"}},
		{"nodes", ObjectQuery{Namespace: "a", LabelSelector: "app"}, []string{"edge-2"}},
		{"empty.apps", ObjectQuery{}, nil},
		{"configmaps", ObjectQuery{Key: "a/one"}, []string{"a/one"}},
		{"configmaps", ObjectQuery{Key: "a/one", Namespace: "shop"}, []string{"a/one"}},
		{"configmaps", ObjectQuery{Key: "a/one", LabelSelector: "app=web"}, nil},
		{"nodes", ObjectQuery{Key: "edge-1"}, []string{"edge-1"}},
	} {
		got, err := objectKeys(src, tc.id, tc.q)
		require.NoError(t, err)
		require.Equal(t, tc.want, got, "%v", tc)
	}
}

// Objects arrive byte for byte as stored, including long ones and characters that JSON escapes.
func testObjectBytes(t *testing.T, src Source) {
	var keys []Key
	payload := map[string]string{}
	require.NoError(t, src.Objects(context.Background(), []string{"configmaps"}, ObjectQuery{}, func(json []byte) error {
		o, err := object.Parse(bytes.Clone(json))
		require.NoError(t, err)
		keys = append(keys, Key{o.Key(), string(o.GetUID()), o.GetResourceVersion(), o.Size()})
		payload[o.Key()], _ = o.Field("data.payload")
		return nil
	}))
	want, err := allKeys(src, "configmaps", KeyQuery{})
	require.NoError(t, err)
	require.Equal(t, want, keys)
	require.Equal(t, "é \" \\ \n", payload["a/one"])
	require.Len(t, payload["a-b/one"], 100_000)
}

func testSentinels(t *testing.T, src Source) {
	ctx := context.Background()
	_, err := indexOf(ctx, src, "absent.example.com", "namespace")
	require.ErrorIs(t, err, store.ErrNoCollection)
	require.EqualError(t, err, "collection absent.example.com: not cached")
	_, err = allKeys(src, "a/b @?%", KeyQuery{})
	require.ErrorIs(t, err, store.ErrNoCollection)
	_, err = objectKeys(src, "absent", ObjectQuery{})
	require.ErrorIs(t, err, store.ErrNoCollection)

	_, err = objectKeys(src, "configmaps", ObjectQuery{Key: "a/on"})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.EqualError(t, err, "collection configmaps: a/on: not found")

	_, err = indexOf(ctx, src, "configmaps", "absent")
	require.ErrorIs(t, err, store.ErrNoIndex)
	require.ErrorContains(t, err, "namespace, app", "the error lists the existing indexes")
	_, err = indexOf(ctx, src, "configmaps", "a/b ?")
	require.ErrorIs(t, err, store.ErrNoIndex)
	_, err = allKeys(src, "configmaps", KeyQuery{Index: "absent"})
	require.ErrorIs(t, err, store.ErrNoIndex)

	_, err = objectKeys(src, "configmaps", ObjectQuery{LabelSelector: "a in"})
	require.ErrorIs(t, err, ErrBadQuery)
	require.ErrorContains(t, err, `label selector "a in"`)
}

func testNeverSynced(t *testing.T, src Source) {
	const id = "pods@shop"
	_, err := indexOf(context.Background(), src, id, "namespace")
	require.ErrorIs(t, err, ErrNotSynced)
	keys, err := allKeys(src, id, KeyQuery{})
	require.ErrorIs(t, err, ErrNotSynced)
	require.Empty(t, keys)
	objects, err := objectKeys(src, id, ObjectQuery{})
	require.ErrorIs(t, err, ErrNotSynced)
	require.Empty(t, objects)
	require.EqualError(t, err, "collection pods@shop: never synced")
	require.ErrorIs(t, src.Changes(context.Background(), id, ChangeQuery{Since: "5"}, nil), ErrNotSynced)
}

func testEachFails(t *testing.T, src Source) {
	full := errors.New("full")
	calls := 0
	err := src.Objects(context.Background(), []string{"configmaps"}, ObjectQuery{}, func(json []byte) error {
		calls++
		return full
	})
	require.ErrorIs(t, err, full)
	require.Equal(t, 1, calls)
	err = src.Keys(context.Background(), []string{"configmaps"}, KeyQuery{}, func(string, Key) error { return full })
	require.ErrorIs(t, err, full)
}

func testCancelled(t *testing.T, src Source) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := src.Status(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = indexOf(ctx, src, "configmaps", "namespace")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, src.Keys(ctx, []string{"configmaps"}, KeyQuery{}, nil), context.Canceled)

	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	calls := 0
	err = src.Objects(ctx, []string{"configmaps"}, ObjectQuery{}, func(json []byte) error {
		calls++
		cancel()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, calls)
}

// The agent's hook adds to the status.
func TestStatusHook(t *testing.T) {
	db, _ := newBolt(t)
	fixture(t, db)
	opts := options(t, "bolt")
	opts.Status = func(s *Status) {
		s.Agent = &AgentStatus{Version: "v1", PID: 7, Server: "https://hub:6443"}
		s.Collections[0].Phase, s.Collections[0].CaughtUp, s.Collections[0].AgeSeconds = "watching", true, 0
		s.Collections = append(s.Collections, Collection{ID: "aaa"})
	}
	for _, tc := range []namedSource{{"db", FromDB(db, opts)}, {"socket", serve(t, FromDB(db, opts))}} {
		status, err := tc.src.Status(context.Background())
		require.NoError(t, err, tc.name)
		require.Equal(t, "https://hub:6443", status.Agent.Server, tc.name)
		require.Equal(t, "aaa", status.Collections[0].ID, "ordered by ID")
		require.True(t, status.Collections[1].CaughtUp, tc.name)
	}
}

// If the clock is behind the stored time, the age is unknown, and no limit allows it.
func TestAge_UnknownIsNotFresh(t *testing.T) {
	db, _ := newBolt(t)
	info := storetest.Info("a")
	c, err := db.Open(info)
	require.NoError(t, err)
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Commit(store.Checkpoint{RV: "1", LastList: now.Add(time.Hour)}))
	status, err := FromDB(db, options(t, "bolt")).Status(context.Background())
	require.NoError(t, err)
	got := status.Collections[0]
	require.True(t, got.AgeUnknown)
	require.InDelta(t, float64(clocks.UnknownSeconds), got.AgeSeconds, 0)
	require.Equal(t, []string{"of unknown age", "unknown"}, []string{got.Freshness(), got.Age()})
	require.Contains(t, status.Headline(), "data is of unknown age")
}
