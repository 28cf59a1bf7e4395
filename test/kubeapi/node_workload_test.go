package kubeapi

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// workload are the objects of a cluster that a node works with, and their changes.
type workload struct {
	t      *testing.T
	typed  kubernetes.Interface
	writes int
}

// shop is the namespace of the workload.
const shop = "shop"

// wrote counts a change.
func (w *workload) wrote(err error) {
	w.t.Helper()
	require.NoError(w.t, err)
	w.writes++
}

// begin creates the namespace, the node as a cloud's controller does, and the first objects.
func (w *workload) begin() {
	w.t.Helper()
	ctx := w.t.Context()
	for _, name := range []string{shop, "clients"} {
		_, err := w.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.wrote(err)
	}
	_, err := w.typed.CoreV1().ServiceAccounts(shop).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	w.wrote(err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeHostName, Address: nodeName}}
	_, err = w.typed.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	w.wrote(err)
	_, err = w.typed.CoreV1().Secrets(shop).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	w.wrote(err)
	for i := range 40 {
		w.configMap(fmt.Sprintf("settings-%d", i))
	}
	for i := range 30 {
		w.service(i)
	}
	for i := range 4 {
		w.pod(fmt.Sprintf("keep-%d", i))
	}
	for i := range 3 {
		w.pod(fmt.Sprintf("round-0-%d", i))
	}
}

func (w *workload) configMap(name string) {
	w.t.Helper()
	_, err := w.typed.CoreV1().ConfigMaps(shop).Create(w.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	w.wrote(err)
}

// service creates a Service with an endpoint.
func (w *workload) service(i int) {
	w.t.Helper()
	ctx, name, port, http := w.t.Context(), fmt.Sprintf("web-%d", i), int32(8080), "http"
	_, err := w.typed.CoreV1().Services(shop).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Name: http, Port: 80}},
	}}, metav1.CreateOptions{})
	w.wrote(err)
	_, err = w.typed.DiscoveryV1().EndpointSlices(shop).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.98.%d.1", i)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &http, Port: &port}},
	}, metav1.CreateOptions{})
	w.wrote(err)
}

// pod creates a pod of the node that mounts a ConfigMap, a Secret and a token.
func (w *workload) pod(name string) {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: nodeName, ServiceAccountName: "default",
		Containers: []corev1.Container{{Name: "main", Image: "image"}},
		Volumes: []corev1.Volume{
			{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings-0"}}}},
			{Name: "password", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password"}}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}},
		},
	}}
	for _, v := range pod.Spec.Volumes {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	_, err := w.typed.CoreV1().Pods(shop).Create(w.t.Context(), pod, metav1.CreateOptions{})
	w.wrote(err)
}

// change makes 500 changes or more: of each kind of objects some are created, changed and deleted, and
// some created again under their names. The pods "keep" live on. Those of a round give way to those of
// the next one.
func (w *workload) change(round int) {
	w.t.Helper()
	ctx, core, now := w.t.Context(), w.typed.CoreV1(), int64(0)
	w.writes = 0
	first := 10 * round // of the objects that are deleted
	for i := range 10 {
		name := fmt.Sprintf("web-%d", first+i)
		w.wrote(core.Services(shop).Delete(ctx, name, metav1.DeleteOptions{}))
		w.wrote(w.typed.DiscoveryV1().EndpointSlices(shop).Delete(ctx, name, metav1.DeleteOptions{}))
		w.wrote(core.ConfigMaps(shop).Delete(ctx, fmt.Sprintf("settings-%d", 20+first+i), metav1.DeleteOptions{}))
	}
	for i := range 5 {
		w.service(first + i)
		w.configMap(fmt.Sprintf("settings-%d", 20+first+i))
	}
	for i := range 50 {
		w.service(30 + 50*round + i)
	}
	for i := range 300 {
		patch := fmt.Appendf(nil, `{"data":{"a":"%d of round %d"}}`, i, round)
		_, err := core.ConfigMaps(shop).Patch(ctx, fmt.Sprintf("settings-%d", i%20), types.MergePatchType, patch, metav1.PatchOptions{})
		w.wrote(err)
	}
	for i := range 50 {
		patch := fmt.Appendf(nil, `{"endpoints":[{"addresses":["10.98.%d.%d"]}]}`, 20+i%10, 2+5*round+i/10)
		_, err := w.typed.DiscoveryV1().EndpointSlices(shop).Patch(ctx, fmt.Sprintf("web-%d", 20+i%10), types.MergePatchType, patch, metav1.PatchOptions{})
		w.wrote(err)
	}
	for i := range 3 {
		w.pod(fmt.Sprintf("round-%d-%d", round+1, i))
	}
	pod := func(i int) string { return fmt.Sprintf("round-%d-%d", round, i) }
	w.wrote(core.Pods(shop).Delete(ctx, ends(round), metav1.DeleteOptions{}))                    // the kubelet ends it
	w.wrote(core.Pods(shop).Delete(ctx, pod(1), metav1.DeleteOptions{GracePeriodSeconds: &now})) // it is gone
	w.wrote(core.Pods(shop).Delete(ctx, pod(2), metav1.DeleteOptions{GracePeriodSeconds: &now}))
	w.pod(pod(2)) // another one of that name
	require.GreaterOrEqual(w.t, w.writes, 500)
}

// ends and begins return the names of a pod that the kubelet ends in a round, and of one that it starts.
func ends(round int) string   { return fmt.Sprintf("round-%d-0", round) }
func begins(round int) string { return fmt.Sprintf("round-%d-0", round+1) }

// touch changes objects of each kind that the components watch: client-go continues a watch that had
// an event, and lists after one that ended within a second without.
func (w *workload) touch(number int) {
	w.t.Helper()
	ctx, options := w.t.Context(), metav1.PatchOptions{}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"value":"%d"}}}`, number)
	for i := range 5 {
		_, err := w.typed.CoreV1().ConfigMaps(shop).Patch(ctx, fmt.Sprintf("settings-%d", i*(number%4)), types.MergePatchType, patch, options)
		w.wrote(err)
	}
	_, err := w.typed.CoreV1().Pods(shop).Patch(ctx, "keep-0", types.MergePatchType, patch, options)
	w.wrote(err)
	_, err = w.typed.CoreV1().Nodes().Patch(ctx, nodeName, types.MergePatchType, patch, options)
	w.wrote(err)
	for i := range 2 {
		name := fmt.Sprintf("web-%d", 20+(number+i)%10)
		_, err = w.typed.CoreV1().Services(shop).Patch(ctx, name, types.MergePatchType, patch, options)
		w.wrote(err)
		_, err = w.typed.DiscoveryV1().EndpointSlices(shop).Patch(ctx, name, types.MergePatchType, patch, options)
		w.wrote(err)
	}
}

// account makes a service account that may read some resources, and returns its token.
func (w *workload) account(name string, rules ...rbacv1.PolicyRule) string {
	w.t.Helper()
	ctx := w.t.Context()
	meta := metav1.ObjectMeta{Name: name}
	_, err := w.typed.CoreV1().ServiceAccounts("clients").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	_, err = w.typed.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	_, err = w.typed.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "clients", Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	request, err := w.typed.CoreV1().ServiceAccounts("clients").CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return request.Status.Token
}

// wanted is what the cluster has, as the node should have it.
type wanted struct {
	configMaps []corev1.ConfigMap
	services   []corev1.Service
	slices     []discoveryv1.EndpointSlice
	pods       []corev1.Pod // of the node
}

// now reads it from the kube-apiserver.
func (w *workload) now(ctx context.Context) wanted {
	w.t.Helper()
	var all wanted
	maps, err := w.typed.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	services, err := w.typed.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	slices, err := w.typed.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	pods, err := w.typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	require.NoError(w.t, err)
	all.configMaps, all.services, all.slices, all.pods = maps.Items, services.Items, slices.Items, pods.Items
	return all
}
