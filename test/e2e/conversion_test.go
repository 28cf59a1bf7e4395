package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestConversionWebhookGone: the cached version of a custom resource is not the stored one, and the webhook
// that converts is gone. The server can't show a new object, so the cache must not look fresh, whether
// a client reads or not. Once the conversion works, it heals by itself.
func TestConversionWebhookGone(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	version := func(name string, stored bool) map[string]any {
		return map[string]any{"name": name, "served": true, "storage": stored, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}}
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err := definitions.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
			"versions": []any{version("v1", true), version("v2", false)},
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	create := func(name string) (err error) {
		_, err = client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}).Namespace("default").Create(t.Context(),
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": name}}}, metav1.CreateOptions{})
		return err
	}
	var last string
	poll(t, "the resource is served", &last, func(context.Context) (bool, error) {
		if err := create("one"); err != nil {
			last = err.Error()
			return false, nil
		}
		return true, nil
	})
	convert := func(conversion map[string]any) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": conversion}})
		require.NoError(t, err)
		_, err = definitions.Patch(t.Context(), "gadgets.example.com", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	webhook := newConversionWebhook(t)
	byWebhook := func(url string, authority []byte) map[string]any {
		return map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": url, "caBundle": authority},
		}}
	}
	converts := byWebhook(webhook.URL, webhook.authority)
	convert(converts)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: gadgets.v2.example.com", more: "health: {maxStaleness: 1s}"})
	a := x.start()
	a.awaitCaughtUp(anywhere("gadgets.example.com"))

	for _, c := range []struct {
		name        string
		gone, heals func()
		reads       bool
	}{
		{"two", func() { webhook.gone.Store(true) }, func() { webhook.gone.Store(false) }, true},
		{"three", func() { webhook.gone.Store(true) }, func() { webhook.gone.Store(false) }, false},
		// The server ends all watches when a definition changes.
		{"four", func() { convert(byWebhook("https://"+harness.FreeAddress(t)+"/convert", nil)) }, func() { convert(converts) }, true},
	} {
		c.gone()
		require.NoError(t, create(c.name))
		began := time.Now()
		a.await("not fresh", func(s *localapi.Status) string {
			if c.reads {
				_ = a.overSocket("/apis/example.com/v2/namespaces/default/gadgets/" + c.name)
			}
			if c := collections(s)["gadgets.example.com"]; c.CaughtUp || c.AgeSeconds < 2 || c.Problem == "" {
				return c.Freshness() + ", " + c.Problem
			}
			return ""
		})
		t.Logf("%s: not fresh after %s", c.name, time.Since(began).Round(time.Second))
		require.Equal(t, http.StatusServiceUnavailable, a.ready())
		require.NotEqual(t, "0", a.overSocket("/apis/example.com/v2/namespaces/default/gadgets/one").Header.Get("Age"))
		c.heals()
		a.awaitCaughtUp(anywhere("gadgets.example.com"))
		poll(t, "the new object", nil, func(context.Context) (bool, error) {
			return a.overSocket("/apis/example.com/v2/namespaces/default/gadgets/"+c.name).StatusCode == http.StatusOK, nil
		})
		require.Equal(t, http.StatusOK, a.ready())
	}
}

// conversionWebhook converts custom resources whose versions differ in nothing else.
type conversionWebhook struct {
	*httptest.Server
	authority []byte // PEM
	gone      atomic.Bool
}

func newConversionWebhook(t *testing.T) *conversionWebhook {
	w := &conversionWebhook{}
	w.Server = httptest.NewTLSServer(w)
	t.Cleanup(w.Close)
	w.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	return w
}

func (w *conversionWebhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID               string           `json:"uid"`
			DesiredAPIVersion string           `json:"desiredAPIVersion"`
			Objects           []map[string]any `json:"objects"`
		} `json:"request"`
	}
	if w.gone.Load() || json.NewDecoder(r.Body).Decode(&review) != nil {
		http.Error(rw, "gone", http.StatusBadGateway)
		return
	}
	for _, o := range review.Request.Objects {
		o["apiVersion"] = review.Request.DesiredAPIVersion
	}
	_ = json.NewEncoder(rw).Encode(map[string]any{ // a server that is gone needs no answer
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": map[string]any{
			"uid": review.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": review.Request.Objects,
		},
	})
}
