package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/snapcache/snapcache/test/controlplane"
)

// TestOwnServer uses a control plane as a user's server, of which it has a kubeconfig and a program: it is killed and
// restored, its datastore is read, and each start finds it as it was at first.
func TestOwnServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "cp") // short, as there is a socket in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "controlplane")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("CONTROLPLANE", program)
	t.Setenv("SNAPCACHE_CONTROLPLANE_DIR", dir)
	ended := start(t, dir)
	folder := t.TempDir()
	if err := controlplane.SaveOwn(t.Context(), folder, filepath.Join(dir, "admin.kubeconfig"), "../../testdata/server.sh"); err != nil {
		t.Fatal(err)
	}
	server, err := controlplane.OwnServer(t.Context(), folder)
	if err != nil || server.Version == "" || server.Kine {
		t.Fatalf("server %v: %v", server, err)
	}

	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	own := func() (*controlplane.ControlPlane, func(name, user string) error, func(name string) error) {
		cp, err := controlplane.Start(t.Context(), controlplane.Options{Own: folder})
		must(err)
		client := func(user string) *kubernetes.Clientset {
			c, err := kubernetes.NewForConfig(cp.RESTConfig(user))
			must(err)
			return c
		}
		create := func(name, user string) error {
			_, err := client(user).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		}
		get := func(name string) error {
			_, err := client(controlplane.Reader).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
			return err
		}
		return cp, create, get
	}
	cp, create, get := own()
	if err := create("a", controlplane.Reader); !apierrors.IsForbidden(err) {
		t.Fatalf("the reader writes: %v", err)
	}
	must(create("a", controlplane.Admin))
	must(cp.KillAPIServer(t.Context()))
	if err := get("a"); err == nil || apierrors.IsNotFound(err) {
		t.Fatalf("a killed server answers: %v", err)
	}
	must(cp.StartAPIServer(t.Context()))
	must(get("a"))
	revision, err := cp.Revision(t.Context())
	must(err)
	saved := filepath.Join(t.TempDir(), "saved")
	must(cp.SaveEtcd(t.Context(), saved))
	must(create("b", controlplane.Admin))
	must(cp.CompactEtcd(t.Context()))
	must(cp.RestoreEtcd(t.Context(), saved))
	must(get("a"))
	if err := get("b"); !apierrors.IsNotFound(err) {
		t.Fatalf("b after it was restored: %v", err)
	}
	if now, err := cp.Revision(t.Context()); err != nil || now < revision {
		t.Fatalf("revision %d, then %d: %v", revision, now, err)
	}
	certified, err := cp.IssueClient("ann", []string{"system:masters"}, time.Hour)
	must(err)
	c, err := kubernetes.NewForConfig(certified.RESTConfig())
	must(err)
	_, err = c.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	must(err)
	must(cp.Stop())

	cp, _, get = own()
	if err := get("a"); !apierrors.IsNotFound(err) {
		t.Fatalf("a at the next start: %v", err)
	}
	must(cp.Stop())
	_, err = run(context.Background(), "stop", "--dir", dir)
	must(err)
	must(<-ended)
}
