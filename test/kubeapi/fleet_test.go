package kubeapi

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

var (
	fleetSeed = flag.Uint64("fleet.seed", 0, "what the random choices of TestFleet begin with; 0 for a new one each time")
	fleetSize = flag.Int("fleet.spokes", 10, "how many spokes TestFleet has")
	fleetFor  = flag.Duration("fleet.for", shortFleet, "how long TestFleet runs, besides its start and its end")
)

// shortFleet is how long TestFleet runs in a short test.
const shortFleet = 45 * time.Second

// fleet is a control plane, agents that follow it (hubs), and agents that follow the hubs (spokes) and
// use the kube-apiserver while those are gone.
type fleet struct {
	t      *testing.T
	on     *plane
	truth  *truth
	random *rand.Rand
	tokens []string // of the spokes
	cached []string // names of the resources that spokes cache
	hubs   []*hub
	spokes []*spoke
	breaks []int64 // those of the links of new spokes

	changing errgroup.Group
	endChurn context.CancelFunc // of the running churn

	audit    string // the file in which the kube-apiserver writes who lists
	restarts int    // of the kube-apiserver
}

// hub is an agent that others follow.
type hub struct {
	*site
	cut bool // the link to the kube-apiserver

	kills, stops, cuts, losses int
}

// fleetOptions are the settings of a fleet.
type fleetOptions struct {
	spokes  int
	limited map[int]string // the one namespace of a spoke
	custom  bool           // a custom resource is cached too
}

// newFleet starts a fleet, and waits until it has caught up.
func newFleet(t *testing.T, random *rand.Rand, o fleetOptions) *fleet {
	t.Helper()
	args, audit := auditArgs(t)
	cp := harness.ControlPlane(t, controlplane.Options{APIServerArgs: args})
	config := cp.RESTConfig(controlplane.Admin)
	client := harness.Dynamic(t, config)
	f := &fleet{t: t, on: &plane{ControlPlane: cp, client: client}, random: random, audit: audit}
	f.tokens = newFleetUsers(t, config, o)
	f.cached = []string{"configmaps.v1.", "pods.v1."}
	ofHubs := []string{"namespaces.v1.", "serviceaccounts.v1."}
	recorded := []string{"configmaps", "pods"}
	if o.custom {
		require.NoError(t, objects.InstallWidgets(t.Context(), config))
		f.cached = append(f.cached, "widgets.v1.example.com")
		ofHubs = append(ofHubs, "customresourcedefinitions.v1.apiextensions.k8s.io")
		recorded = append(recorded, "widgets.example.com")
	}
	f.truth = recordTruth(t, cp, recorded...)

	api := sharedCertificate(t)
	for range 2 {
		s := newSiteOf(t, f.on, resourcesNamed(append(ofHubs, f.cached...)...), func(s *site) {
			s.access, s.api = true, api
		})
		f.hubs = append(f.hubs, &hub{site: s})
	}
	for _, h := range f.hubs {
		h.awaitAuthentication(f.tokens)
	}
	for i := range o.spokes {
		f.spokes = append(f.spokes, f.newSpoke(i, f.tokens[i], o.limited[i]))
	}
	f.awaitInStep("at the start")
	return f
}

// awaitAuthentication waits until a new hub knows who its clients are: until then it refuses their tokens,
// and an agent that has cached nothing ends when its token is refused.
func (h *hub) awaitAuthentication(tokens []string) {
	h.t.Helper()
	for _, token := range tokens {
		config := rest.AnonymousClientConfig(restConfig(h.t, h.cached))
		config.BearerToken = token
		client := harness.Clientset(h.t, config)
		err := wait.PollUntilContextTimeout(h.t.Context(), pollEvery, patience, true, func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().ConfigMaps("fleet").Get(ctx, "none", metav1.GetOptions{})
			return apierrors.IsNotFound(err) || apierrors.IsForbidden(err), nil
		})
		require.NoError(h.t, err)
	}
}

// resourcesNamed returns resources to be cached.
func resourcesNamed(names ...string) (all []*resource) {
	for _, name := range names {
		gvr, _ := schema.ParseResourceArg(name)
		all = append(all, &resource{GroupVersionResource: *gvr})
	}
	return all
}

// auditArgs returns flags with which a kube-apiserver writes into a file who lists what.
func auditArgs(t *testing.T) (args []string, file string) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, verbs: [list], userGroups: ["system:serviceaccounts"]}
- {level: None}
`), 0o600))
	file = filepath.Join(dir, "audit.log")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + file, "--audit-log-mode=blocking"}, file
}

// sharedCertificate makes the certificate that the hubs share, as behind one Service, and returns its
// place in the configuration.
func sharedCertificate(t *testing.T) string {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	require.NoError(t, err)
	dir := t.TempDir()
	crt, pem := filepath.Join(dir, "hub.crt"), filepath.Join(dir, "hub.key")
	require.NoError(t, os.WriteFile(crt, certificate, 0o600))
	require.NoError(t, os.WriteFile(pem, key, 0o600))
	return fmt.Sprintf("  certFile: %s\n  keyFile: %s\n", crt, pem)
}

// newFleetUsers makes the namespaces, and a service account for each spoke, which may read all that it
// caches, or that of one namespace. It returns their tokens.
func newFleetUsers(t *testing.T, config *rest.Config, o fleetOptions) (tokens []string) {
	t.Helper()
	ctx := t.Context()
	client := harness.Clientset(t, config)
	for _, name := range []string{"fleet", "left", "right"} {
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	named := metav1.ObjectMeta{Name: "spoke"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}},
	}
	_, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: named, Rules: rules}, metav1.CreateOptions{})
	require.NoError(t, err)
	for i := range o.spokes {
		name := spokeName(i)
		_, err := client.CoreV1().ServiceAccounts("fleet").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		meta := metav1.ObjectMeta{Name: name}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "spoke"}
		subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "fleet", Name: name}}
		if only := o.limited[i]; only != "" {
			_, err = client.RbacV1().RoleBindings(only).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		} else {
			_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		}
		require.NoError(t, err)
		seconds := int64(24 * 3600)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		request, err = client.CoreV1().ServiceAccounts("fleet").CreateToken(ctx, name, request, metav1.CreateOptions{})
		require.NoError(t, err)
		tokens = append(tokens, request.Status.Token)
	}
	return tokens
}

func spokeName(i int) string { return fmt.Sprintf("spoke-%d", i) }

// newSpoke starts a spoke with a token, which caches a namespace, or all if it is empty, after changes to
// its site.
func (f *fleet) newSpoke(i int, token, namespace string, change ...func(*site)) *spoke {
	f.t.Helper()
	config := f.spokeConfig(token)
	path := filepath.Join(f.t.TempDir(), "spoke.kubeconfig")
	require.NoError(f.t, clientcmd.WriteToFile(*config, path))
	sp := &spoke{name: spokeName(i), seen: map[string]uint64{}}
	change = slices.Insert(change, 0, func(s *site) {
		s.direct = s.link
		s.link = f.newHubLink()
		s.link.BreakAfter(f.breaks...)
		s.server, s.only = path, namespace
	})
	sp.site = newSiteOf(f.t, f.on, resourcesNamed(f.cached...), change...)
	return sp
}

// newHubLink returns a link to the hubs.
func (f *fleet) newHubLink() *harness.Network {
	f.t.Helper()
	var addresses []string
	for _, h := range f.hubs {
		addresses = append(addresses, h.address)
	}
	return harness.NewNetwork(f.t, addresses...)
}

// spokeConfig returns a kubeconfig with the hubs as its current context, and contexts of the kube-apiserver
// and of the hubs as a seed. The addresses are those of the links.
func (f *fleet) spokeConfig(token string) *clientcmdapi.Config {
	f.t.Helper()
	hubs, err := clientcmd.LoadFromFile(f.hubs[0].cached)
	require.NoError(f.t, err)
	direct, err := clientcmd.LoadFromFile(f.hubs[0].server)
	require.NoError(f.t, err)
	config := clientcmdapi.NewConfig()
	config.AuthInfos["spoke"] = &clientcmdapi.AuthInfo{Token: token}
	for name, from := range map[string]*clientcmdapi.Config{"hubs": hubs, directContext: direct, seedContext: hubs} {
		for _, c := range from.Clusters {
			config.Clusters[name] = c.DeepCopy()
		}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "spoke"}
	}
	config.CurrentContext = "hubs"
	return config
}

// churn changes objects until it is stopped.
func (f *fleet) churn() {
	ctx, cancel := context.WithCancel(f.t.Context())
	f.endChurn = cancel
	c := &churn{client: f.on.client, random: rand.New(rand.NewPCG(f.random.Uint64(), 0))} //nolint:gosec // choices of a test
	f.changing.Go(func() error {
		c.run(ctx)
		return nil
	})
}

// pause stops the churn.
func (f *fleet) pause() {
	f.t.Helper()
	f.endChurn()
	require.NoError(f.t, f.changing.Wait())
}

// quiet stops the churn, repairs everything, and compares all spokes with etcd.
func (f *fleet) quiet(when string) {
	f.t.Helper()
	f.pause()
	for _, h := range f.hubs {
		if h.agent == nil {
			h.start()
		}
		h.restore()
	}
	for _, s := range f.spokes {
		if s.agent == nil {
			s.start()
		}
		s.restore()
	}
	f.awaitInStep(when)
}

// TestFleet kills, stops and cuts off hubs, spokes and the kube-apiserver at random while objects change.
// What each spoke has must always be a state that etcd had, must never go back, and be etcd's newest one
// when the changes pause. Spokes list only what the closed set of reasons allows, and nothing at the
// kube-apiserver.
func TestFleet(t *testing.T) {
	t.Parallel()
	seed := *fleetSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // choices of a test
	}
	t.Logf("the random choices are those of -fleet.seed=%d", seed)
	f := newFleet(t, rand.New(rand.NewPCG(seed, 0)), fleetOptions{spokes: *fleetSize}) //nolint:gosec // choices of a test
	end := time.Now().Add(*fleetFor)
	for n := 0; n < 3 || time.Now().Before(end); n++ {
		f.churn()
		for i := range 14 {
			f.round(i)
		}
		f.quiet(fmt.Sprintf("after period %d", n))
		if n == 0 {
			f.loseVolume()
		}
	}
	f.check(nil)
	kills := 0
	for _, h := range f.hubs {
		kills += h.kills
		t.Logf("hub: %d kills, %d stops, %d cuts, %d lost volumes", h.kills, h.stops, h.cuts, h.losses)
	}
	require.NotZero(t, kills)
	require.NotZero(t, f.restarts)
}

// round does one thing to each kind of member, and looks at the spokes.
func (f *fleet) round(i int) {
	f.t.Helper()
	h := f.hubs[f.random.IntN(len(f.hubs))]
	switch dice := f.random.IntN(10); {
	case h.agent == nil:
		h.start()
	case dice < 3:
		h.kills++
		h.kill()
	case dice < 4:
		h.stops++
		h.stop()
	case dice < 7 && !h.cut:
		h.cut = true
		h.cuts++
		h.link.Down()
	default:
		h.restore()
	}
	s := f.spokes[f.random.IntN(len(f.spokes))]
	switch dice := f.random.IntN(10); {
	case s.agent == nil:
		s.start()
	case dice < 2:
		s.observe(false)
		s.stop()
		s.stopped(false)
	case dice < 5:
		s.observe(false)
		s.kill()
		s.stopped(true)
	case dice < 8 && !s.cut:
		s.cut = true
		s.link.Down()
	default:
		s.restore()
	}
	if i == 7 {
		kill := f.restarts%2 == 0
		f.restarts++
		f.changing.Go(func() error { return restartServer(f.t.Context(), f.on.ControlPlane, kill) })
	}
	f.pass(time.Duration(f.random.Int64N(int64(killMax))))
	for _, s := range f.spokes {
		if s.agent != nil && f.random.IntN(2) == 0 {
			s.observe(false)
		}
	}
}

// pass lets time pass. It is part of the test, and no synchronisation.
func (f *fleet) pass(d time.Duration) {
	select {
	case <-f.t.Context().Done():
	case <-time.After(d):
	}
}

// restore restores the hub's link.
func (h *hub) restore() {
	h.t.Helper()
	if h.cut {
		h.cut = false
		h.link.Up()
	}
}

// loseVolume starts a hub without its file while it is cut off: spokes that reach it must not take it for
// an empty cluster.
func (f *fleet) loseVolume() {
	f.t.Helper()
	h := f.hubs[0]
	h.stop()
	files, err := filepath.Glob(filepath.Join(h.dir, "cache.db*"))
	require.NoError(f.t, err)
	require.NotEmpty(f.t, files)
	for _, file := range files {
		require.NoError(f.t, os.Remove(file))
	}
	h.losses++
	h.cut = true
	h.link.Down()
	h.start()
	f.hubs[1].kills++
	f.hubs[1].kill()
	for range 10 {
		for _, s := range f.spokes {
			s.observe(false)
		}
	}
	f.hubs[1].start()
	slices.Reverse(f.hubs)
}
