package objects

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Service returns service number i of a namespace, without the address, which the apiserver sets.
func Service(namespace string, i int, seed int64) *corev1.Service {
	a := appOf(i)
	s := newSource("service", namespace, i, seed)
	m := meta(a, namespace, fmt.Sprintf("%s-%d", a.name, i))
	m.Annotations["example.com/slo"] = fmt.Sprintf("99.%d", s.IntN(100))
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: m,
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app.kubernetes.io/instance": a.name + "-" + namespace},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromString("http"), Protocol: corev1.ProtocolTCP},
				{Name: "metrics", Port: int32(9000 + s.IntN(1000)), TargetPort: intstr.FromInt32(9090), Protocol: corev1.ProtocolTCP},
			},
			SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
}

// EndpointSlice returns the slice of service number i with one to eight pods.
func EndpointSlice(namespace string, i int, seed int64) *discoveryv1.EndpointSlice {
	a := appOf(i)
	s := newSource("endpointslice", namespace, i, seed)
	service := fmt.Sprintf("%s-%d", a.name, i)
	m := meta(a, namespace, service+"-"+s.text(5))
	m.Labels[discoveryv1.LabelServiceName] = service
	m.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	slice := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  m,
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr("http"), Port: ptr(a.port), Protocol: ptr(corev1.ProtocolTCP)},
			{Name: ptr("metrics"), Port: ptr(int32(9090)), Protocol: ptr(corev1.ProtocolTCP)},
		},
	}
	for n := range 1 + s.IntN(8) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{s.ip(10, 64+n)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)},
			NodeName:   ptr(NodeName(s.IntN(1000))),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: namespace, Name: a.name + "-" + s.text(10) + "-" + s.text(5), UID: s.uid()},
			Zone: ptr(s.from("a", "b", "c")),
		})
	}
	return slice
}
