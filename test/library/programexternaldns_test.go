package library

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// externalDNS has all pods in an informer, with all but their managedFields and most annotations, for the few that are
// behind a headless Service. It writes DNS records to its memory, and each change of one to its log.
var externalDNS = program{
	name: "external-dns, records of headless Services", most: 10_000,
	source: func(t *testing.T) string {
		t.Helper()
		dir := moduleOf(t, "sigs.k8s.io/external-dns", "v0.21.0")
		// An old requirement of a requirement, of which the program has no package. A module proxy may lack it.
		command(t, dir, "go", "mod", "edit", "-exclude=vbom.ml/util@v0.0.0-20160121211510-db5cfe13f5cc")
		return dir
	},
	pkg: ".",
	args: func(_ *testing.T, kubeconfig, _ string) []string {
		return []string{
			"--kubeconfig", kubeconfig, "--source=service", "--provider=inmemory", "--inmemory-zone=example.com", "--registry=noop",
			"--interval=5s", "--events", "--metrics-address=127.0.0.1:0",
		}
	},
	work: makeHeadlessService,
	done: func(t *testing.T, _ kubernetes.Interface, p *harness.Process, name string) (result string, all bool) {
		t.Helper()
		records := make(map[string]string) // the addresses by the host's name
		change := regexp.MustCompile(`msg="(CREATE|UPDATE \(new\)|DELETE): (\S*)` + name + `\.example\.com 0 IN A  (\S+) `)
		for _, m := range change.FindAllStringSubmatch(p.Output(), -1) {
			if records[m[2]] = m[3]; m[1] == "DELETE" {
				delete(records, m[2])
			}
		}
		for _, host := range slices.Sorted(maps.Keys(records)) {
			result += fmt.Sprintln(host, records[host])
		}
		return result, len(records) == 1+tasks && strings.Count(records[""], ";") == tasks-1
	},
}

// makeHeadlessService makes pods and a Service without an address of its own, whose hosts they are.
func makeHeadlessService(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	app, once := map[string]string{"app": name}, metav1.CreateOptions{}
	makeNamespace(t, c, name)
	addresses := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i := range tasks {
		pod := fmt.Sprintf("web-%02d", i)
		_, err := c.CoreV1().Pods(name).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: app},
			Spec:       corev1.PodSpec{Hostname: "host-" + pod, Containers: []corev1.Container{{Name: "main", Image: "example.com/shop"}}},
		}, once)
		require.NoError(t, err)
		addresses.Endpoints = append(addresses.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", 1+i)}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod, Namespace: name},
		})
	}
	_, err := c.DiscoveryV1().EndpointSlices(name).Create(t.Context(), addresses, once)
	require.NoError(t, err)
	_, err = c.CoreV1().Services(name).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{
			"external-dns.alpha.kubernetes.io/hostname": name + ".example.com",
		}},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: app},
	}, once)
	require.NoError(t, err)
}
