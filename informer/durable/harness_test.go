package durable_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer/durable"
	"github.com/snapcache/snapcache/store/bolt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for a condition, far longer than it takes; pollEvery is the time
// between two checks.
const (
	patience  = time.Minute
	pollEvery = 20 * time.Millisecond
)

// log is a log whose lines a test reads.
type log struct {
	mu      sync.Mutex
	lines   bytes.Buffer
	written chan struct{} // closed with the next line; nil if no one waits
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written != nil {
		close(l.written)
		l.written = nil
	}
	return l.lines.Write(b)
}

// await waits until a line has text, or ctx ends.
func (l *log) await(ctx context.Context, text string) error {
	for {
		l.mu.Lock()
		if bytes.Contains(l.lines.Bytes(), []byte(text)) {
			l.mu.Unlock()
			return nil
		}
		if l.written == nil {
			l.written = make(chan struct{})
		}
		written := l.written
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-written:
		}
	}
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// warnings returns the lines of level WARN or above.
func (l *log) warnings() (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	return lines
}

// program is a program's settings for its cache.
type program struct {
	durable.Options
	log      *log
	registry *prometheus.Registry
}

// newProgram returns a program whose cache is in dir, and a server that answers with the identity of a
// cluster.
func newProgram(t *testing.T, dir string) *program {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"kube-system","uid":"u"}}`)
	}))
	t.Cleanup(server.Close)
	p := &program{log: &log{}, registry: prometheus.NewRegistry()}
	p.Options = durable.Options{
		Dir: dir, Config: &rest.Config{Host: server.URL}, Scheme: scheme.Scheme, Metrics: p.registry,
		Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return p
}

// open opens the program's cache, which the test closes.
func (p *program) open(t *testing.T) *durable.Cache {
	t.Helper()
	c, err := durable.Open(t.Context(), p.Options)
	require.NoError(t, err)
	return c
}

// gauge returns a metric by name, its labels as text, and whether there is one.
func (p *program) gauge(t *testing.T, name string) (value float64, labels string, ok bool) {
	t.Helper()
	families, err := p.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			require.Len(t, f.Metric, 1)
			for _, l := range f.Metric[0].Label {
				labels += l.GetName() + "=" + l.GetValue() + " "
			}
			return f.Metric[0].GetGauge().GetValue(), labels, true
		}
	}
	return 0, "", false
}

// source takes the place of a server with ConfigMaps, for one watch.
type source struct {
	objects []corev1.ConfigMap
	events  *watch.FakeWatcher
}

// newSource returns a source of n ConfigMaps with size bytes of data each.
func newSource(n int, data func(i int) string) *source {
	s := &source{events: watch.NewFakeWithChanSize(1000, false)}
	for i := range n {
		s.objects = append(s.objects, configMap(i, i+1, data(i)))
	}
	return s
}

func configMap(i, rv int, data string) corev1.ConfigMap {
	return corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("c", i), UID: "u", ResourceVersion: fmt.Sprint(rv)},
		Data:       map[string]string{"value": data},
	}
}

// IsWatchListSemanticsUnSupported makes client-go's informers list.
func (*source) IsWatchListSemanticsUnSupported() bool { return true }

func (s *source) List(opts metav1.ListOptions) (runtime.Object, error) {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(len(s.objects) + 1)}, Items: s.objects}
	if opts.Limit == 1 || opts.FieldSelector != "" {
		list.Items = list.Items[:1]
	}
	return list, nil
}

func (s *source) Watch(metav1.ListOptions) (watch.Interface, error) { return s.events, nil }

// run runs an informer of the source on the cache until stop is called, which returns Run's error. seen
// gets the name of each ConfigMap that a handler gets.
func (s *source) run(t *testing.T, c *durable.Cache) (inf cache.SharedIndexInformer, seen <-chan string, stop func() error) {
	t.Helper()
	names := make(chan string, 100_000)
	inf = c.NewInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{})
	_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { names <- obj.(*corev1.ConfigMap).Name },
		UpdateFunc: func(_, obj any) { names <- obj.(*corev1.ConfigMap).Name },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Run(ctx, func(ctx context.Context) error {
			inf.RunWithContext(ctx)
			return nil
		})
	}()
	return inf, names, sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// waitSynced waits until an informer has synced.
func waitSynced(t *testing.T, inf cache.SharedIndexInformer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.True(t, cache.WaitForCacheSync(ctx.Done(), inf.HasSynced))
}

// put makes a file in dir, for bucket "meta" one of snapcache, and changes one value.
func put(t *testing.T, dir, bucket, key, value string) {
	t.Helper()
	path := filepath.Join(dir, durable.FileName)
	if bucket == "meta" {
		create(t, dir)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), []byte(value))
	}))
	require.NoError(t, db.Close())
}

// create makes an empty file of the cache in dir.
func create(t *testing.T, dir string) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, durable.FileName), bolt.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// held is the environment variable of a process that holds the lock of the cache in a directory.
const held = "SNAPCACHE_TEST_HELD"

// TestHold runs in the process that hold starts.
func TestHold(t *testing.T) {
	dir := os.Getenv(held)
	if dir == "" {
		t.Skip("for a process that hold starts")
	}
	db, err := bolt.Open(filepath.Join(dir, durable.FileName), bolt.Options{})
	require.NoError(t, err)
	fmt.Println("held")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends the process
	require.NoError(t, db.Close())
}

// hold has another process open the cache in dir, until release is called.
func hold(t *testing.T, dir string) (release func()) {
	t.Helper()
	command := []string{os.Args[0], "-test.run=^TestHold$", "-test.timeout=2m"}
	if emulator := os.Getenv("SNAPCACHE_TEST_EXEC"); emulator != "" { // make test-cross
		command = append([]string{emulator}, command...)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), held+"="+dir)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, len("held\n"))
	_, err = out.Read(line)
	require.NoError(t, err)
	require.Equal(t, "held\n", string(line))
	return sync.OnceFunc(func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	})
}
