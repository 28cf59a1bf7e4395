package upstream

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	pods = Resource{
		GVR:  schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Kind: "Pod", Namespaced: true,
	}
	tills = Resource{
		GVR:  schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "tills"},
		Kind: "Till", Namespaced: true,
	}
)

// serve returns a cluster whose server is h.
func serve(t testing.TB, h http.HandlerFunc) *Cluster {
	t.Helper()
	srv := httptest.NewServer(h)
	c, err := New(&rest.Config{Host: srv.URL})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		srv.Close()
	})
	return c
}

// serveHTTP2 is serve with TLS and HTTP/2, as a kube-apiserver has them.
func serveHTTP2(t testing.TB, h http.HandlerFunc) *Cluster {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	c, err := New(&rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certPEM(srv.Certificate())}})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		srv.Close()
	})
	return c
}

// protocols are the variants of serve.
var protocols = []struct {
	name  string
	serve func(testing.TB, http.HandlerFunc) *Cluster
}{{"HTTP/1", serve}, {"HTTP/2", serveHTTP2}}

// reply writes a JSON answer.
func reply(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body))
}

func statusBody(code int, reason, message, details string) string {
	if details == "" {
		details = "{}"
	}
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"details":%s,"code":%d}`,
		message, reason, details, code)
}

// bigPod is about as long as a pod of a real cluster. Half of it is managedFields.
func bigPod(i int, typed bool) string {
	typ := ""
	if typed {
		typ = `"kind":"Pod","apiVersion":"v1",`
	}
	var env, managed strings.Builder
	for j := range 40 {
		if j > 0 {
			env.WriteByte(',')
			managed.WriteByte(',')
		}
		fmt.Fprintf(&env, `{"name":"SETTING_%d","value":"https://till-%d.example.com/path?x=%d&y=\"z\""}`, j, i, j)
		fmt.Fprintf(&managed, `"k:{\"name\":\"SETTING_%d\"}":{".":{},"f:name":{},"f:value":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}`, j)
	}
	return fmt.Sprintf(`{%s"metadata":{"name":"till-%d","namespace":"shop-%d","uid":"0b1c2d3e-0000-4000-8000-%012d","resourceVersion":"%d",`+
		`"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"till","example.com/zone":"a"},`+
		`"managedFields":[{"manager":"kubelet","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{%s}}}}]},`+
		`"spec":{"nodeName":"edge-%d","containers":[{"name":"c","image":"registry.example.com/till:1.2.3","env":[%s]}]},`+
		`"status":{"phase":"Running","podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`,
		typ, i, i%10, i, 1000+i, managed.String(), i%100, env.String())
}

func bigList(n int) string {
	var b strings.Builder
	b.WriteString(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5000"},"items":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(bigPod(i, false))
	}
	b.WriteString("]}\n")
	return b.String()
}

func podSource(c *Cluster) *Source {
	return c.Source(SourceOptions{Resource: pods, Prune: object.NewPrune(object.ManagedFields)})
}
