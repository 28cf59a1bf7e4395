package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/bench/result"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/test/controlplane"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The ways of a fleet that comes back.
const (
	Informers     = "client-go on the apiserver"
	AgentsDirect  = "agents on the apiserver"
	AgentsSharing = "agents on hubs, one account" // as the pods of a DaemonSet
	AgentsOnHubs  = "agents on hubs, an account each"
)

// The peers of a fleet that comes back.
const (
	returnTyped = "return-typed"
	returnSpoke = "return-spoke"
)

// HubMemory is the memory of a hub, which its limits follow, as in deploy/kustomize/hub.
const HubMemory = 1 << 30

// hubResources are cached by a hub besides its nodes' resources: for the cluster's identity, and to
// decide who may read.
var hubResources = []string{
	"namespaces", "serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
	"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
}

// hub is an agent that nodes follow through a network.
type hub struct {
	subject
	launch
	network    *measure.Network
	kubeconfig string // through the network, without credentials
}

// comeBack measures a fleet that comes back in each of the ways.
func (d *Driver) comeBack(ctx context.Context, s *server, plan Return) (all []result.Return, err error) {
	client, err := newAccounts(ctx, s)
	if err != nil {
		return nil, err
	}
	own, err := d.newTokens(ctx, client, "own", max(plan.Nodes, plan.Listing), 1)
	if err != nil {
		return nil, err
	}
	shared, err := d.newTokens(ctx, client, "shared", plan.Nodes, plan.Nodes)
	if err != nil {
		return nil, err
	}
	var hubs []*hub
	defer func() {
		for _, h := range hubs {
			err = errors.Join(err, h.network.Close(), h.stop())
		}
	}()
	for i := range plan.Hubs {
		h, err := d.newHub(ctx, s, i)
		if err != nil {
			return nil, err
		}
		hubs = append(hubs, h)
	}
	l := launch{kubeconfig: s.kubeconfig, resources: s.resources, read: s.readMark(), tokens: own}
	changed, err := d.outage(ctx, s, plan.Share, hubs, &l)
	if err != nil {
		return nil, err
	}
	for _, way := range []struct {
		name, peer string
		nodes      int
		tokens     string
		hubs       []*hub
	}{
		{Informers, returnTyped, plan.Listing, own, nil},
		{AgentsDirect, returnSpoke, plan.Listing, own, nil},
		{AgentsSharing, returnSpoke, plan.Nodes, shared, hubs},
		{AgentsOnHubs, returnSpoke, plan.Nodes, own, hubs},
	} {
		l := l
		l.name, l.nodes, l.tokens, l.dir = way.peer, way.nodes, way.tokens, filepath.Join(d.scratch, way.peer)
		if err := restart(ctx, d, way.hubs, l.marks); err != nil {
			return nil, err
		}
		r, err := d.returnOf(ctx, s, l, way.hubs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		r.Way, r.Changed = way.name, changed
		all = append(all, r)
		d.log("%-32s %d nodes caught up %6.2f s, %9d bytes, %d lists, requests %v, cpu %6.2f s, server's %6.2f s, hubs %+v",
			way.name, r.Nodes, r.CaughtUpSeconds, r.Wire.Received, r.Lists, r.Requests, r.SettledCPU, r.ServerCPU, r.Hubs)
	}
	return all, nil
}

// outage has one agent store a checkpoint, from which all continue. Then objects change, as in ten
// minutes without the nodes: the apiserver does not remember them any more, and the hubs have them only
// in their files.
func (d *Driver) outage(ctx context.Context, s *server, share float64, hubs []*hub, l *launch) (changed int, err error) {
	first := *l
	first.name, first.nodes, first.dir = returnSpoke, 1, filepath.Join(d.scratch, returnSpoke)
	if _, first.marks, err = s.change(ctx, 0); err != nil {
		return 0, err
	}
	p, _, err := d.measured(ctx, s, first)
	if err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	if err := p.stop(); err != nil {
		return 0, err
	}
	changed, l.marks, err = s.change(ctx, share)
	if err != nil {
		return 0, err
	}
	if err := restart(ctx, d, hubs, l.marks); err != nil {
		return 0, err
	}
	if err := s.forget(ctx); err != nil {
		return 0, err
	}
	for _, h := range hubs {
		if _, err := h.await(ctx, peer.CaughtUp); err != nil {
			return 0, err
		}
	}
	return changed, nil
}

// returnOf starts nodes at once, and waits until the last has caught up. All their objects are compared with
// the server's.
func (d *Driver) returnOf(ctx context.Context, s *server, l launch, hubs []*hub) (r result.Return, err error) {
	if err := s.rest(ctx); err != nil {
		return r, err
	}
	var wire measure.Traffic
	for i, h := range hubs {
		l.hubs = append(l.hubs, h.kubeconfig)
		before, err := measure.ReadMemory(h.pid())
		if err != nil {
			return r, err
		}
		cpu, err := measure.CPU(h.pid())
		if err != nil {
			return r, err
		}
		t, err := h.network.Traffic()
		if err != nil {
			return r, err
		}
		wire = wire.Since(t)
		n := (l.nodes - i + len(hubs) - 1) / len(hubs)
		r.Hubs = append(r.Hubs, result.Hub{Nodes: n, Before: before, CPU: -cpu.Seconds()})
	}
	totals, err := s.cp.RequestTotals(ctx)
	if err != nil {
		return r, err
	}
	p, cost, err := d.measured(ctx, s, l)
	if err != nil {
		return r, err
	}
	after, err := s.cp.RequestTotals(ctx)
	if err != nil {
		return r, errors.Join(err, p.kill())
	}
	r.Nodes, r.Lists, r.Idle, r.Cost = l.nodes, p.(*child).lists, s.idle, cost
	r.Requests, r.Wire = requests(totals, after, l.resources), cost.Traffic
	for _, kind := range []string{"tokenreviews", "subjectaccessreviews"} {
		r.Requests[kind] = after.Since(totals).Count("POST", kind)
	}
	if len(hubs) > 0 {
		r.Wire = wire
	}
	for i, h := range hubs {
		if err := h.cost(&r.Hubs[i], &r.Wire); err != nil {
			return r, errors.Join(err, p.kill())
		}
	}
	return r, p.stop()
}

// cost adds the cost of the hub's nodes.
func (h *hub) cost(to *result.Hub, wire *measure.Traffic) (err error) {
	if to.After, err = measure.ReadMemory(h.pid()); err != nil {
		return err
	}
	cpu, err := measure.CPU(h.pid())
	if err != nil {
		return err
	}
	to.CPU += cpu.Seconds()
	t, err := h.network.Traffic()
	wire.Received, wire.Sent, wire.Connections = wire.Received+t.Received, wire.Sent+t.Sent, wire.Connections+t.Connections
	return err
}

// newHub starts a hub without stored data.
func (d *Driver) newHub(ctx context.Context, s *server, number int) (*hub, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, marks, err := s.change(ctx, 0)
	if err != nil {
		return nil, err
	}
	h := &hub{launch: launch{
		name: Agent, dir: filepath.Join(d.scratch, fmt.Sprintf("hub-%d", number)), api: address, hub: true,
		kubeconfig: s.kubeconfig, resources: s.resources, read: s.readMark(), marks: marks,
	}}
	if h.network, err = measure.NewNetwork(address); err != nil {
		return nil, err
	}
	if h.subject, err = d.begin(h.launch); err != nil {
		return nil, errors.Join(err, h.network.Close())
	}
	if err = h.connect(ctx); err != nil {
		return nil, errors.Join(err, h.network.Close(), h.kill())
	}
	return h, nil
}

// connect waits until the hub has caught up, and writes the kubeconfig of its nodes.
func (h *hub) connect(ctx context.Context) error {
	if _, err := h.await(ctx, peer.CaughtUp); err != nil {
		return err
	}
	ca, _, err := serving.Read(serving.Dir(filepath.Join(h.dir, "cache.db")))
	if err != nil {
		return err
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["hub"] = &clientcmdapi.Cluster{Server: "https://" + h.network.Address(), CertificateAuthorityData: ca}
	c.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub"}
	c.CurrentContext = "hub"
	h.kubeconfig = filepath.Join(h.dir, "spokes.kubeconfig")
	return clientcmd.WriteToFile(*c, h.kubeconfig)
}

// restart restarts hubs, which then know only the content of their files, and waits until they have
// reached the marks.
func restart(ctx context.Context, d *Driver, hubs []*hub, marks []peer.Mark) (err error) {
	for _, h := range hubs {
		h.marks = marks
		if err := h.stop(); err != nil {
			return err
		}
		if h.subject, err = d.begin(h.launch); err != nil {
			return err
		}
		if err := h.connect(ctx); err != nil {
			return err
		}
	}
	return nil
}

// accountsIn is the namespace of the nodes' service accounts.
const accountsIn = "fleet"

// newAccounts lets service accounts in a new namespace read the resources that a node caches.
func newAccounts(ctx context.Context, s *server) (*kubernetes.Clientset, error) {
	client, err := kubernetes.NewForConfig(s.cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return nil, fmt.Errorf("accounts: %w", err)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: accountsIn}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "spoke"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + accountsIn}},
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
	if err == nil {
		_, err = client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("accounts: %w", err)
	}
	return client, nil
}

// newTokens writes a file with a token for each of n nodes. each of them share an account.
func (d *Driver) newTokens(ctx context.Context, client *kubernetes.Clientset, prefix string, n, each int) (file string, err error) {
	tokens := make([]string, n)
	accounts := client.CoreV1().ServiceAccounts(accountsIn)
	var g errgroup.Group
	g.SetLimit(changers)
	for first := 0; first < n; first += each {
		g.Go(func() error {
			name, seconds := fmt.Sprintf("%s-%d", prefix, first/each), int64(24*3600)
			if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("account %s: %w", name, err)
			}
			for i := first; i < min(first+each, n); i++ {
				request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
				request, err := accounts.CreateToken(ctx, name, request, metav1.CreateOptions{})
				if err != nil {
					return fmt.Errorf("token of %s: %w", name, err)
				}
				tokens[i] = request.Status.Token
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return "", err
	}
	file = filepath.Join(d.scratch, "tokens-"+prefix)
	return file, os.WriteFile(file, []byte(strings.Join(tokens, "\n")+"\n"), 0o600)
}
