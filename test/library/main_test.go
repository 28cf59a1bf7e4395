package library

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// patience is the time that a test waits for a condition, far longer than it takes; pollEvery is
// the time between two checks.
const (
	patience  = time.Minute
	pollEvery = 20 * time.Millisecond
)

// shared is the control plane of all tests; each has a namespace of its own.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "library:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	if shared, err = harness.StartControlPlane(context.Background(), controlplane.Options{}); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, shared.Stop()) }()
	return m.Run(), nil
}

// clientset returns a client and a namespace for the test's objects.
func clientset(t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()
	c := harness.Clientset(t, shared.RESTConfig(controlplane.Admin))
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

// put makes a ConfigMap of the test, or changes it.
func put(t *testing.T, c kubernetes.Interface, namespace, name, value string, labels map[string]string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Data: map[string]string{"value": value}}
	_, err := c.CoreV1().ConfigMaps(namespace).Update(t.Context(), m, metav1.UpdateOptions{})
	if err != nil {
		_, err = c.CoreV1().ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

func remove(t *testing.T, c kubernetes.Interface, namespace, name string) {
	t.Helper()
	require.NoError(t, c.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// openStore opens the durable store in a folder.
func openStore(t *testing.T, dir string) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), bolt.Options{})
	require.NoError(t, err)
	return db
}

// requests counts the lists of a resource that go through a connection: each GET without a watch,
// except the probe before a resume, which lists one object, and the guards' reads of one object.
type requests struct {
	mu    sync.Mutex
	lists int
}

func (r *requests) config(path string) *rest.Config {
	cfg := shared.RESTConfig(controlplane.Admin)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			q := req.URL.Query()
			probe := q.Get("limit") == "1" // or a question about one object
			if req.Method == http.MethodGet && filepath.Base(req.URL.Path) == path && !q.Has("watch") && !probe {
				r.mu.Lock()
				r.lists++
				r.mu.Unlock()
			}
			return next.RoundTrip(req)
		})
	})
	return cfg
}

// take returns the number of lists since the last call.
func (r *requests) take() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, r.lists = r.lists, 0
	return n
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
