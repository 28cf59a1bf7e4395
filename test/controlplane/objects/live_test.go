package objects

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

func start(t *testing.T) (*controlplane.ControlPlane, *kubernetes.Clientset) {
	t.Helper()
	cp := harness.ControlPlane(t, controlplane.Options{})
	client, err := kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	return cp, client
}

// TestSeedPodsDirect checks that the apiserver serves pods that were written to etcd exactly as they
// were made, and that they can be changed and deleted.
func TestSeedPodsDirect(t *testing.T) {
	t.Parallel()
	cp, client := start(t)
	const count = 300 // two namespaces
	if err := SeedPodsDirect(t.Context(), cp, count); err != nil {
		t.Fatal(err)
	}
	// Without a resourceVersion the list is of the present state: it has to have every write.
	list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != count {
		t.Fatalf("%d pods, want %d", len(list.Items), count)
	}
	made := make(map[string]string)
	for i := range count {
		pod := Pod(Namespace(i%2), i, directSeed)
		made[key(pod.Namespace, pod.Name)] = encode(t, pod)
	}
	versions := make(map[string]bool)
	for _, pod := range list.Items {
		versions[pod.ResourceVersion] = true
		pod.ResourceVersion = ""
		pod.APIVersion, pod.Kind = "v1", "Pod" // items of a list have none
		if got, want := encode(t, pod), made[key(pod.Namespace, pod.Name)]; got != want {
			t.Fatalf("served\n%s\nmade\n%s", got, want)
		}
	}
	if len(versions) != count {
		t.Errorf("%d resource versions, want %d", len(versions), count)
	}
	if out, err := cp.Kubectl(t.Context(), "get", "pods", "-n", Namespace(1), "--no-headers"); err != nil || strings.Count(string(out), "Running") != count/2 {
		t.Errorf("kubectl get pods: %v\n%s", err, out)
	}
	if _, err := Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "pods", 10); err != nil {
		t.Error(err)
	}
	first := list.Items[0]
	err = client.CoreV1().Pods(first.Namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))})
	if err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Pods(first.Namespace).Get(t.Context(), first.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted pod: %v, want not found", err)
	}
}

// TestTouchDirect checks that a watch of the apiserver delivers what was changed in etcd, with all else as
// it was, and that changes of one object at once are all made.
func TestTouchDirect(t *testing.T) {
	t.Parallel()
	cp, client := start(t)
	if err := SeedPodsDirect(t.Context(), cp, 2); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	was := list.Items[0]
	w, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	etcd, err := cp.EtcdClient()
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	var mu sync.Mutex
	written := map[string]string{} // annotations by resourceVersion
	const changes = 8
	err = parallel(t.Context(), changes, changes, func(ctx context.Context, i int) error {
		name := "touched-" + strconv.Itoa(i)
		rv, err := TouchDirect(ctx, etcd, "pods", key(was.Namespace, was.Name), name, "now")
		mu.Lock()
		defer mu.Unlock()
		written[rv] = name
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var last *corev1.Pod
	for range changes {
		event := <-w.ResultChan()
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type != watch.Modified {
			t.Fatalf("event %s %v", event.Type, event.Object)
		}
		if name := written[pod.ResourceVersion]; pod.Annotations[name] != "now" {
			t.Errorf("resourceVersion %s without annotation %q: %v", pod.ResourceVersion, name, pod.Annotations)
		}
		last = pod
	}
	for _, name := range written {
		if last.Annotations[name] != "now" {
			t.Errorf("annotation %s is lost", name)
		}
		delete(last.Annotations, name)
	}
	last.ResourceVersion, was.ResourceVersion = "", ""
	was.APIVersion, was.Kind = last.APIVersion, last.Kind // items of a list have none
	if len(written) != changes || !maps.Equal(last.Annotations, was.Annotations) {
		t.Errorf("%d changes, annotations %v, want %v", len(written), last.Annotations, was.Annotations)
	}
	last.Annotations, was.Annotations = nil, nil
	if got, want := encode(t, last), encode(t, &was); got != want {
		t.Errorf("changed to\n%s\nfrom\n%s", got, want)
	}
	if _, err := TouchDirect(t.Context(), etcd, "pods", "none/none", "x", "y"); err == nil {
		t.Error("no error for an object that does not exist")
	}
}

// TestChurn churns up to a count, through a restart of the apiserver, and as a user without the right
// to.
func TestChurn(t *testing.T) {
	t.Parallel()
	cp, client := start(t)
	admin := cp.RESTConfig(controlplane.Admin)
	if err := Seed(t.Context(), cp, SeedOptions{Pods: 20, ConfigMaps: 20, Widgets: 20, Namespaces: 2}); err != nil {
		t.Fatal(err)
	}
	counts, err := Churn(t.Context(), admin, ChurnOptions{Rate: -1, Count: 400, Namespaces: 2, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	if counts.Total() != 400 || counts.Failed != 0 || min(counts.Created, counts.Updated, counts.Deleted) < 20 {
		t.Errorf("counts of 400 operations: %+v", counts)
	}
	alive := 0
	for _, resource := range []string{"pods", "configmaps", "widgets"} {
		for i := range 2 {
			out, err := cp.Kubectl(t.Context(), "get", resource, "-n", Namespace(i), "-o", "name")
			if err != nil {
				t.Fatal(err)
			}
			alive += strings.Count(string(out), "\n")
		}
	}
	if want := 60 + counts.Created - counts.Deleted; alive != want {
		t.Errorf("%d objects, want %d of %+v", alive, want, counts)
	}
	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			t.Errorf("pod %s is being deleted only", pod.Name)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	churned := make(chan error, 1)
	go func() {
		var err error
		counts, err = Churn(ctx, admin, ChurnOptions{Rate: 200, Namespaces: 2, Kinds: []string{"pods"}, Seed: 8})
		churned <- err
	}()
	if err := cp.KillAPIServer(t.Context()); err != nil {
		t.Error(err)
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Error(err)
	}
	before, err := cp.RequestTotals(t.Context())
	for deadline := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(deadline); {
		var now controlplane.Totals
		if now, err = cp.RequestTotals(t.Context()); now.Since(before).Count("PATCH", "pods") > 20 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	if err := <-churned; err != nil {
		t.Errorf("churn through a restart: %v", err)
	}
	if err != nil || counts.Updated < 20 || counts.Failed == 0 {
		t.Errorf("churn through a restart: %+v (%v)", counts, err)
	}

	_, err = Churn(t.Context(), cp.RESTConfig(controlplane.Reader), ChurnOptions{Count: 10})
	if !apierrors.IsForbidden(err) {
		t.Errorf("churn by the reader: %v, want forbidden", err)
	}
}
