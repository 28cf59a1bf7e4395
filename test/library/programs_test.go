package library

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/snapcache/snapcache/informer/unmodified"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

var programsFull = flag.Bool("programs.full", false, "TestPrograms runs all programs, each on 100,000 objects")

const (
	// confinedTo is the memory limit of a program.
	confinedTo = 128 << 20

	// memoryLimit is GOMEMLIMIT of a program with durable informers.
	memoryLimit = "64MiB"
)

// program is one that others wrote. Nothing of it is changed.
type program struct {
	name   string
	source func(t *testing.T) string // returns the directory of its module
	pkg    string                    // its main package
	small  bool                      // it is run each time
	most   int                       // beside more objects it does not start in time, with any informers; 0 for no such limit

	// seed makes about n objects that it watches; nil for pods. churn changes up to 50 of them each second until
	// ctx ends; nil for pods.
	seed  func(ctx context.Context, cp *controlplane.ControlPlane, n int) error
	churn func(ctx context.Context, config *rest.Config) error

	// prepare prepares the cluster for it, once; nil if there is nothing to do.
	prepare func(t *testing.T, c kubernetes.Interface, source string)

	env []string // besides what all have

	// args are its arguments.
	args func(t *testing.T, kubeconfig, dir string) []string

	// work gives it something to do, under a name; done returns its result, without the name, and whether that is all.
	work func(t *testing.T, c kubernetes.Interface, name string)
	done func(t *testing.T, c kubernetes.Interface, p *harness.Process, name string) (result string, all bool)
}

const tasks = 20 // of a work

var programs = []program{
	{
		name: "an operator on controller-runtime, its example of ReplicaSets and their pods", small: true,
		source: func(t *testing.T) string { return moduleOf(t, "sigs.k8s.io/controller-runtime", "v0.25.2") }, pkg: "./examples/builtins",
		args: func(t *testing.T, _, dir string) []string {
			t.Helper()
			certs := filepath.Join(dir, "k8s-webhook-server", "serving-certs")
			require.NoError(t, os.MkdirAll(certs, 0o700))
			makeCertificate(t, certs)
			return nil // KUBECONFIG is set
		},
		work: func(t *testing.T, c kubernetes.Interface, name string) {
			t.Helper()
			makeReplicaSets(t, c, name, 0)
		},
		done: func(t *testing.T, c kubernetes.Interface, _ *harness.Process, name string) (result string, all bool) {
			t.Helper()
			sets, err := c.AppsV1().ReplicaSets(name).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			all = len(sets.Items) == tasks
			for _, s := range sets.Items {
				all = all && s.Labels["hello"] == "world"
				result += fmt.Sprintln(s.Name, s.Labels, s.Generation)
			}
			return result, all
		},
	},
	{
		name:   "descheduler",
		source: func(t *testing.T) string { return moduleOf(t, "sigs.k8s.io/descheduler", "v0.36.0") }, pkg: "./cmd/descheduler",
		args: func(t *testing.T, kubeconfig, dir string) []string {
			t.Helper()
			policy := filepath.Join(dir, "policy.yaml")
			require.NoError(t, os.WriteFile(policy, []byte(evictionPolicy), 0o600))
			return []string{
				"--kubeconfig", kubeconfig, "--policy-config-file", policy, "--descheduling-interval=10s",
				"--secure-port=0", "--client-connection-qps=200", "--client-connection-burst=200",
			}
		},
		work: func(t *testing.T, c kubernetes.Interface, name string) {
			t.Helper()
			free, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: "!evict", FieldSelector: nodeOf(name)})
			require.NoError(t, err)
			for _, p := range free.Items[:len(free.Items)/2] {
				_, err := c.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"labels":{"evict":%q}}}`, name), metav1.PatchOptions{})
				require.NoError(t, err)
			}
		},
		done: func(t *testing.T, c kubernetes.Interface, _ *harness.Process, name string) (result string, all bool) {
			t.Helper()
			pods, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: nodeOf(name)})
			require.NoError(t, err)
			stay, others := 0, 0
			for _, p := range pods.Items {
				switch chosen, evicted := p.Labels["evict"] == name, p.DeletionTimestamp != nil; {
				case chosen && !evicted:
					stay++
				case evicted && !chosen:
					others++
				}
			}
			return fmt.Sprintf("%d chosen ones stay, %d others are evicted", stay, others), stay == 0
		},
	},
	{
		name: "kube-controller-manager, its controller of ReplicaSets",
		source: func(t *testing.T) string {
			dir := copyOf(t, filepath.Join(harness.Root(t), "test", "controlplane", "apiserver"))
			k8s := strings.TrimSpace(string(command(t, dir, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")))
			require.NoError(t, os.CopyFS(filepath.Join(dir, "manager"), os.DirFS(filepath.Join(k8s, "cmd", "kube-controller-manager"))))
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "manager", "app"))) // which is imported
			return dir
		},
		pkg: "./manager",
		args: func(_ *testing.T, kubeconfig, _ string) []string {
			return []string{"--kubeconfig", kubeconfig, "--controllers=replicaset-controller", "--leader-elect=false", "--secure-port=0"}
		},
		work: func(t *testing.T, c kubernetes.Interface, name string) {
			t.Helper()
			makeReplicaSets(t, c, name, 3)
		},
		done: func(t *testing.T, c kubernetes.Interface, _ *harness.Process, name string) (result string, all bool) {
			t.Helper()
			pods, err := c.CoreV1().Pods(name).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			var made []string
			for _, p := range pods.Items {
				made = append(made, fmt.Sprintln(p.GenerateName, p.OwnerReferences[0].Name, p.Labels))
			}
			slices.Sort(made)
			return strings.Join(made, ""), len(made) == 3*tasks
		},
	},
	externalDNS,
	keda,
	prometheusOperator,
}

// evictionPolicy has descheduler evict each pod with a label, once.
const evictionPolicy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: evict
  pluginConfig:
  - name: DefaultEvictor
    args: {podProtections: {defaultDisabled: [PodsWithLocalStorage, SystemCriticalPods]}}
  - name: PodLifeTime
    args: {maxPodLifeTimeSeconds: 1, labelSelector: {matchExpressions: [{key: evict, operator: Exists}]}}
  plugins:
    deschedule: {enabled: [PodLifeTime]}
`

// nodeOf selects the pods of the node of a work.
func nodeOf(work string) string {
	i, _ := strconv.Atoi(strings.TrimPrefix(work, "work-"))
	return "spec.nodeName=" + objects.NodeName(i)
}

func makeNamespace(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// makeCertificate writes a certificate that is its own authority to a directory, under the names of a Secret of TLS.
func makeCertificate(t *testing.T, dir string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	require.NoError(t, err)
	for name, content := range map[string][]byte{"ca.crt": certificate, "tls.crt": certificate, "tls.key": key} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
}

func makeReplicaSets(t *testing.T, c kubernetes.Interface, namespace string, replicas int32) {
	t.Helper()
	makeNamespace(t, c, namespace)
	for i := range tasks {
		app := map[string]string{"app": strconv.Itoa(i)}
		_, err := c.AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("set-%02d", i)},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: app},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/shop"}}},
				},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// TestPrograms runs programs that others wrote, on more objects than fit into their memory. With client-go's informers the
// kernel kills them. With durable ones they do the same work in the cluster as without a limit: after their first start,
// after a restart of the server, whose lists then have expired, and after kills while objects change.
func TestPrograms(t *testing.T) {
	count, kills := 10_000, 3
	if *programsFull {
		count, kills = 100_000, 50
	}
	for _, p := range programs {
		if p.small || *programsFull {
			t.Run(p.name, func(t *testing.T) { newTrial(t, p, min(count, cmp.Or(p.most, count))).run(kills) })
		}
	}
}

func churnPods(ctx context.Context, config *rest.Config) error {
	_, err := objects.Churn(ctx, config, objects.ChurnOptions{Rate: 50, Kinds: []string{"pods"}})
	return err
}

// trial is the test of one program.
type trial struct {
	program
	t          *testing.T
	cp         *controlplane.ControlPlane
	c          kubernetes.Interface
	group      *harness.MemoryGroup
	binary     string
	kubeconfig string
	dir        string
	works      int
	want       string // what the program makes of each work
	own        atomic.Int64
}

func newTrial(t *testing.T, p program, count int) *trial {
	t.Helper()
	group := harness.NewMemoryGroup(t, confinedTo)
	if group == nil {
		t.Skip("this machine has no cgroup for the program: run the test as root")
	}
	cp := harness.ControlPlane(t, controlplane.Options{})
	if p.seed == nil {
		p.seed, p.churn = objects.SeedPodsDirect, churnPods
	}
	require.NoError(t, p.seed(t.Context(), cp, count))
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{Nodes: 40}))
	c, source := harness.Clientset(t, cp.RESTConfig(controlplane.Admin)), p.source(t)
	if p.prepare != nil {
		p.prepare(t, c, source)
	}
	return &trial{
		program: p, t: t, cp: cp, c: c, group: group,
		binary: buildDurable(t, source, p.pkg), kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), dir: t.TempDir(),
	}
}

func (r *trial) run(kills int) {
	t := r.t
	began := time.Now()
	p := r.start(nil)
	name := r.give()
	r.await(p, name, func(result string) { r.want = result })
	p.Kill()
	t.Logf("without a limit: %d MB of its own, %s", r.own.Swap(0)>>20, time.Since(began).Round(time.Second))

	p = r.start(r.group)
	code, err := p.Wait()
	require.NoError(t, err, "it has not been killed")
	require.Equal(t, 1, r.group.Kills(t), "it ended by itself, with %d", code)
	t.Logf("killed for memory in %d MB, with %d MB of its own", confinedTo>>20, r.own.Swap(0)>>20)

	durable := []string{
		unmodified.DirVariable + "=" + filepath.Join(r.dir, "cache"), "GOMEMLIMIT=" + memoryLimit,
	}
	began = time.Now()
	p = r.start(r.group, durable...)
	r.requireDone(p, "the first start")
	t.Logf("first start: %d MB of its own, %s", r.own.Swap(0)>>20, time.Since(began).Round(time.Second))

	require.NoError(t, r.cp.KillAPIServer(t.Context()))
	require.NoError(t, r.cp.StartAPIServer(t.Context()))
	r.requireDone(p, "a restart of the server")
	t.Logf("after a restart of the server: %d MB of its own", r.own.Swap(0)>>20)

	ctx, stop := context.WithCancel(t.Context())
	churned := make(chan error, 1)
	go func() { churned <- r.churn(ctx, r.cp.RESTConfig(controlplane.Admin)) }()
	for i := range kills {
		p.Kill()
		p = r.start(r.group, durable...)
		if i%10 == 0 || i == kills-1 {
			r.requireDone(p, fmt.Sprint("kill ", i))
			continue
		}
		time.Sleep(wait.Jitter(500*time.Millisecond, 2)) // anywhere in its start
	}
	stop()
	require.NoError(t, <-churned)
	p.Kill()
	require.Equal(t, 1, r.group.Kills(t), "programs with durable informers were killed")
	t.Logf("%d kills while objects change: %d MB of its own", kills, r.own.Load()>>20)
}

// start starts the program, in a cgroup if there is one.
func (r *trial) start(group *harness.MemoryGroup, env ...string) *harness.Process {
	r.t.Helper()
	cmd := group.Command(r.binary, r.args(r.t, r.kubeconfig, r.dir)...)
	cmd.Env = slices.Concat(harness.Environment(r.dir), []string{"TMPDIR=" + r.dir, "KUBECONFIG=" + r.kubeconfig}, r.env, env)
	p := harness.Start(r.t, cmd)
	go r.follow(p)
	return p
}

// follow keeps the most memory of its own that the program has had, until it ends.
func (r *trial) follow(p *harness.Process) {
	for p.Running() {
		r.own.Store(max(harness.OwnMemory(p.Cmd.Process.Pid), r.own.Load()))
		time.Sleep(10 * time.Millisecond)
	}
}

// give gives the program something to do, and returns its name.
func (r *trial) give() string {
	r.t.Helper()
	r.works++
	name := fmt.Sprintf("work-%02d", r.works)
	r.work(r.t, r.c, name)
	return name
}

// await waits until the program has done a work, and passes what it has made of it.
func (r *trial) await(p *harness.Process, name string, check func(result string)) {
	r.t.Helper()
	var result string
	err := wait.PollUntilContextTimeout(r.t.Context(), 200*time.Millisecond, 2*harness.Patience, true, func(context.Context) (all bool, err error) {
		require.True(r.t, p.Running(), "it has ended, with %v", p.Cmd.ProcessState)
		result, all = r.done(r.t, r.c, p, name)
		return all, nil
	})
	require.NoError(r.t, err, "it has made\n%s", result)
	check(result)
}

// requireDone gives the program something to do, and requires that it makes the same of it as without durable informers.
func (r *trial) requireDone(p *harness.Process, after string) {
	r.t.Helper()
	r.await(p, r.give(), func(result string) { require.Equal(r.t, r.want, result, after) })
}
