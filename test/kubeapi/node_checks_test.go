package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// podsRun returns what is wrong with the pods that run.
func (n *node) podsRun(ctx context.Context) string {
	names, err := n.kubelet.running(ctx)
	if err != nil {
		return err.Error()
	}
	var want []string
	for _, p := range n.want.pods {
		want = append(want, p.Namespace+"/"+p.Name)
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		return fmt.Sprintf("pods %v run, not %v", names, want)
	}
	return ""
}

// reported returns what is wrong with the pods' status at the kube-apiserver.
func (n *node) reported(ctx context.Context) string {
	pods, err := n.typed.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	if len(pods.Items) != len(n.want.pods) {
		return fmt.Sprintf("there are %d pods, not %d", len(pods.Items), len(n.want.pods))
	}
	for _, p := range pods.Items {
		if s := p.Status; s.Phase != corev1.PodRunning || len(s.ContainerStatuses) != 1 || !s.ContainerStatuses[0].Ready {
			return fmt.Sprintf("pod %s has the status %v", p.Name, s)
		}
		created, _ := n.kubelet.containers()
		if created[p.Namespace+"/"+p.Name] == 0 {
			return fmt.Sprintf("pod %s is from before", p.Name)
		}
	}
	return ""
}

// beats returns a check of the node's status and of its lease, which was renewed after a time.
func (n *node) beats(after time.Time) func(context.Context) string {
	return func(ctx context.Context) string {
		node, err := n.typed.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		ready := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if ready < 0 {
			return fmt.Sprintf("the conditions of the node are %v", node.Status.Conditions)
		}
		lease, err := n.typed.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(after) {
			return fmt.Sprintf("the lease was renewed at %s", lease.Spec.RenewTime)
		}
		return ""
	}
}

// resolves returns what is wrong with the addresses of the services.
func (n *node) resolves(ctx context.Context) string {
	for _, s := range n.want.services {
		got, err := n.dns.ask(ctx, fmt.Sprintf("%s.%s.svc.cluster.local. A", s.Name, s.Namespace))
		if want := "A " + s.Spec.ClusterIP; err != nil || got != want {
			return fmt.Sprintf("service %s has %q (%v), not %q", s.Name, got, err, want)
		}
	}
	return ""
}

// forgets returns a check of the services that were there before and are not wanted.
func (n *node) forgets(before wanted) func(context.Context) string {
	return func(ctx context.Context) string {
		gone := 0
		for _, s := range before.services {
			if slices.ContainsFunc(n.want.services, func(o corev1.Service) bool { return o.Name == s.Name }) {
				continue
			}
			gone++
			if got, err := n.dns.ask(ctx, fmt.Sprintf("%s.%s.svc.cluster.local. A", s.Name, s.Namespace)); got != noName {
				return fmt.Sprintf("service %s, which is gone, has %q (%v)", s.Name, got, err)
			}
		}
		if gone == 0 {
			return "no service is gone"
		}
		return ""
	}
}

// rules returns what is wrong with the rules of kube-proxy.
func (n *node) rules(ctx context.Context) string {
	ports, endpoints := map[string]bool{}, map[string]bool{}
	for _, s := range n.want.services {
		for _, p := range s.Spec.Ports {
			ports[fmt.Sprintf("%s:%d/%s", s.Spec.ClusterIP, p.Port, strings.ToLower(string(p.Protocol)))] = true
		}
	}
	for _, s := range n.want.slices {
		for _, e := range s.Endpoints {
			endpoints[fmt.Sprintf("%s:%d", e.Addresses[0], *s.Ports[0].Port)] = true
		}
	}
	gotPorts, gotEndpoints, err := n.proxy.rules(ctx)
	switch {
	case err != nil:
		return err.Error()
	case !maps.Equal(gotPorts, ports):
		return fmt.Sprintf("there are rules for %d ports of services, not for %d: %v", len(gotPorts), len(ports), gotPorts)
	case !maps.Equal(gotEndpoints, endpoints):
		return fmt.Sprintf("there are rules for %d endpoints, not for %d: %v", len(gotEndpoints), len(endpoints), gotEndpoints)
	}
	return ""
}

// getsToken asks for a token as the kubelet does, and returns what went wrong.
func (n *node) getsToken(ctx context.Context) string {
	client := harness.Clientset(n.t, restConfig(n.t, n.files["kubelet"]))
	pod := n.want.pods[0]
	hour := int64(3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &hour,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	request, err := client.CoreV1().ServiceAccounts(shop).CreateToken(ctx, "default", request, metav1.CreateOptions{})
	if err != nil {
		return err.Error()
	}
	n.issued[request.Status.Token] = true
	return ""
}

// requireIssued requires that the kube-apiserver knows all tokens that were answered.
func (n *node) requireIssued() {
	n.t.Helper()
	require.NotEmpty(n.t, n.issued)
	for token := range n.issued {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		review, err := n.typed.AuthenticationV1().TokenReviews().Create(n.t.Context(), review, metav1.CreateOptions{})
		require.NoError(n.t, err)
		require.True(n.t, review.Status.Authenticated, "%v", review.Status)
		require.Equal(n.t, "system:serviceaccount:shop:default", review.Status.User.Username)
	}
}

// refusesWrites returns what is wrong with the answer to a write while the kube-apiserver is away.
func (n *node) refusesWrites(ctx context.Context) string {
	client := harness.Clientset(n.t, restConfig(n.t, n.files["kubelet"]))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	err := client.CoreV1().RESTClient().Post().Resource("nodes").Body(node).MaxRetries(0).Do(ctx).Error()
	if !apierrors.IsServiceUnavailable(err) {
		return fmt.Sprint(err)
	}
	return ""
}

// requireKept requires that no container of the pods that should live was stopped since the kubelet's
// start, and none was created twice.
func (n *node) requireKept() {
	n.t.Helper()
	created, stopped := n.kubelet.containers()
	for i := range 4 {
		name := fmt.Sprintf("%s/keep-%d", shop, i)
		require.LessOrEqual(n.t, created[name], 1, "containers of %s", name)
		require.Zero(n.t, stopped[name], "containers of %s that were stopped", name)
	}
}

// requireLists requires of the lists since an offset of the audit log that there is none, or, if the
// history was gone, that the agent made one of each collection, for that reason.
func (n *node) requireLists(offset int64, gone bool) {
	n.t.Helper()
	byAgent, byComponents := n.lists(offset)
	n.results = append(n.results, result{"lists that the kube-apiserver served to the node since then", fmt.Sprint(len(byAgent) + len(byComponents))})
	if n.site == nil {
		require.NotEmpty(n.t, byComponents, "no list was seen, so that their absence proves nothing")
		return
	}
	require.Empty(n.t, byComponents)
	if !gone {
		require.Empty(n.t, byAgent)
		return
	}
	relists := map[string]int{} // since the agent's start, by reason
	for _, m := range n.site.scrape()["snapcache_relists_total"].GetMetric() {
		require.LessOrEqual(n.t, int(m.GetCounter().GetValue()), 1, "%v", m)
		for _, l := range m.GetLabel() {
			if l.GetName() == "reason" && m.GetCounter().GetValue() > 0 {
				relists[l.GetValue()]++
			}
		}
	}
	require.NotEmpty(n.t, byAgent, "the history was not gone")
	require.Equal(n.t, map[string]int{string(store.ReasonExpired): len(byAgent)}, relists)
}

// lists returns the lists of the node's agent and of its components since an offset of the audit log.
// What is limited to one object is no list: by such requests an agent learns whether it can resume.
func (n *node) lists(offset int64) (byAgent, byComponents []string) {
	n.t.Helper()
	for line := range bytes.Lines(readAll(n.t, n.audit, offset)) {
		var e struct {
			Stage, Verb, UserAgent, RequestURI string
			User                               struct{ Username string }
		}
		require.NoError(n.t, json.Unmarshal(line, &e))
		list := e.Verb == "list" && e.Stage == "ResponseComplete" && !strings.Contains(e.RequestURI+"&", "limit=1&")
		initial := e.Verb == "watch" && e.Stage == "ResponseStarted" && strings.Contains(e.RequestURI, "sendInitialEvents=true")
		switch seen := e.User.Username + " " + e.RequestURI; {
		case !list && !initial, e.UserAgent == "controlplane", e.User.Username == "system:apiserver":
		case strings.HasPrefix(e.UserAgent, "snapcache"):
			byAgent = append(byAgent, seen)
		default:
			byComponents = append(byComponents, seen)
		}
	}
	return byAgent, byComponents
}

// without returns the pods but for one.
func without(pods []corev1.Pod, name string) []corev1.Pod {
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Name == name })
}

// controller has informers, whose handlers check that no object goes back in time.
type controller struct {
	stores map[string]cache.SharedIndexInformer
	stop   func()

	mu     sync.Mutex
	newest map[types.UID]uint64 // resourceVersions
	gone   map[types.UID]bool
	back   []string // what went back
}

func startController(t *testing.T, kubeconfig string) *controller {
	t.Helper()
	client := harness.Clientset(t, restConfig(t, kubeconfig))
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(client, 0)
	c := &controller{newest: map[types.UID]uint64{}, gone: map[types.UID]bool{}, stores: map[string]cache.SharedIndexInformer{
		"configmaps":     factory.Core().V1().ConfigMaps().Informer(),
		"services":       factory.Core().V1().Services().Informer(),
		"endpointslices": factory.Discovery().V1().EndpointSlices().Informer(),
	}, stop: func() { cancel(); factory.Shutdown() }}
	for _, informer := range c.stores {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.see(o, false) },
			UpdateFunc: func(_, o any) { c.see(o, false) },
			DeleteFunc: func(o any) { c.see(o, true) },
		})
		require.NoError(t, err)
	}
	factory.Start(ctx.Done())
	t.Cleanup(c.stop)
	return c
}

// see notes a version of an object.
func (c *controller) see(o any, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	m, err := meta.Accessor(o)
	if err != nil {
		c.back = append(c.back, err.Error())
		return
	}
	rv, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil || rv < c.newest[m.GetUID()] || c.gone[m.GetUID()] {
		c.back = append(c.back, fmt.Sprintf("%T %s at %s, after %d, deleted before: %t", o, m.GetName(), m.GetResourceVersion(), c.newest[m.GetUID()], c.gone[m.GetUID()]))
	}
	c.newest[m.GetUID()], c.gone[m.GetUID()] = rv, gone
}

// requireForward requires that no object went back.
func (c *controller) requireForward(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NotEmpty(t, c.newest)
	require.Empty(t, c.back)
}

// cached returns what is wrong with the controller's cache.
func (n *node) cached(context.Context) string {
	want := map[string]map[string]string{"configmaps": {}, "services": {}, "endpointslices": {}}
	add := func(resource string, o metav1.Object) {
		want[resource][o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
	}
	for i := range n.want.configMaps {
		add("configmaps", &n.want.configMaps[i])
	}
	for i := range n.want.services {
		add("services", &n.want.services[i])
	}
	for i := range n.want.slices {
		add("endpointslices", &n.want.slices[i])
	}
	for resource, informer := range n.controller.stores {
		got := map[string]string{}
		for _, o := range informer.GetStore().List() {
			m, err := meta.Accessor(o)
			require.NoError(n.t, err)
			got[m.GetNamespace()+"/"+m.GetName()] = m.GetResourceVersion()
		}
		if !informer.HasSynced() || !maps.Equal(got, want[resource]) {
			return fmt.Sprintf("%d %s, not the %d at their resourceVersions", len(got), resource, len(want[resource]))
		}
	}
	return ""
}
