package informer

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/store"
)

func TestScopeOfAddress(t *testing.T) {
	gvr := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	for _, tc := range []struct {
		address string
		want    store.Scope
	}{
		{"https://h/api/v1/pods", store.Scope{GVR: gvr("", "v1", "pods")}},
		{"https://h/api/v1/namespaces", store.Scope{GVR: gvr("", "v1", "namespaces")}},
		{"https://h/api/v1/namespaces/shop/pods?limit=1", store.Scope{GVR: gvr("", "v1", "pods"), Namespace: "shop"}},
		{"https://h/apis/apps/v1/namespaces/apis/deployments", store.Scope{GVR: gvr("apps", "v1", "deployments"), Namespace: "apis"}},
		{"https://h/apis/example.com/v1alpha1/widgets", store.Scope{GVR: gvr("example.com", "v1alpha1", "widgets")}},
		{"https://h/k8s/clusters/api/api/v1/namespaces/api/pods", store.Scope{GVR: gvr("", "v1", "pods"), Namespace: "api"}},
		{"https://h/api/v1/pods?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx", store.Scope{
			GVR: gvr("", "v1", "pods"), LabelSelector: "a=b", FieldSelector: "metadata.name=x",
		}},
		{"https://h/", store.Scope{}},
		{"https://h/v1/pods", store.Scope{}},
		{"https://h/version", store.Scope{}},
		{"https://h/api/v1", store.Scope{}},
	} {
		u, err := url.Parse(tc.address)
		require.NoError(t, err)
		got, known := scopeOf(u)
		require.Equal(t, tc.want, got, tc.address)
		require.Equal(t, tc.want != store.Scope{}, known, tc.address)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A list that notices its end late, as on a busy machine, gets no connection in the meantime.
func TestTargetOfListEndsLate(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer server.Close()
	dialed := make(chan struct{}, 1)
	config := &rest.Config{
		Host: server.URL,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			dialed <- struct{}{}
			return conn, err
		},
		WrapTransport: func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
				defer cancel()
				defer context.AfterFunc(r.Context(), func() {
					select {
					case <-dialed:
						dialed <- struct{}{}
					case <-time.After(connectPause / 10):
						cancel()
					}
				})()
				return next.RoundTrip(r.WithContext(ctx))
			})
		},
	}
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	lw, err := lists{config: config, http: client, tweak: func(*metav1.ListOptions) {}}.dynamic(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	require.NoError(t, err)
	got, known := targetOf(lw)
	require.True(t, known)
	require.Equal(t, "pods", got.GVR.Resource)
	<-dialed // a connection that is not used
	client.CloseIdleConnections()
	require.Zero(t, requests.Load())
}

// The scope is found without a request, with a server and without one.
func TestTargetOf(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { requests.Add(1) }))
	defer server.Close()
	want := store.Scope{GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Namespace: "shop", LabelSelector: "a=b"}
	for _, host := range []string{server.URL, "https://127.0.0.1:1"} {
		client, err := rest.HTTPClientFor(&rest.Config{Host: host})
		require.NoError(t, err)
		l := lists{config: &rest.Config{Host: host}, http: client, namespace: "shop", tweak: func(o *metav1.ListOptions) { o.LabelSelector = "a=b" }}
		lw, err := l.dynamic(want.GVR)
		require.NoError(t, err)
		got, known := targetOf(lw)
		require.True(t, known)
		require.Equal(t, want, got)
		client.CloseIdleConnections()
	}
	require.Zero(t, requests.Load())

	_, known := targetOf(&cache.ListWatch{ListFunc: func(metav1.ListOptions) (runtime.Object, error) { //nolint:staticcheck // what still sets it
		require.Fail(t, "a list without a context could not be ended")
		return nil, nil
	}})
	require.False(t, known)
	_, known = targetOf(&cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return &unstructured.UnstructuredList{}, nil
	}})
	require.False(t, known)
}
