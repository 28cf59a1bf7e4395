package objects

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Deployment returns deployment number i of a namespace. It gets no pods: the control plane has no
// controllers.
func Deployment(namespace string, i int, seed int64) *appsv1.Deployment {
	a := appOf(i)
	s := newSource("deployment", namespace, i, seed)
	m := meta(a, namespace, fmt.Sprintf("%s-%d", a.name, i))
	selector := map[string]string{"app.kubernetes.io/instance": m.Name}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"app.kubernetes.io/instance": m.Name, "app.kubernetes.io/name": a.name},
			Annotations: map[string]string{"example.com/config-checksum": s.hex(64)},
		},
		Spec: podSpec(a, namespace, s),
	}
	template.Spec.Priority, template.Spec.PreemptionPolicy = nil, nil
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: m,
		Spec: appsv1.DeploymentSpec{
			Replicas:             ptr(int32(1 + s.IntN(3))),
			Selector:             &metav1.LabelSelector{MatchLabels: selector},
			Template:             template,
			RevisionHistoryLimit: ptr(int32(3)),
		},
	}
}
