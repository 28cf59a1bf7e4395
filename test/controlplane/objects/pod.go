package objects

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pod returns pod number i of a namespace as the apiserver stores a running pod: with UID, times,
// status and managedFields. It is about 10 KB of JSON, half of it managedFields.
func Pod(namespace string, i int, seed int64) *corev1.Pod {
	a := appOf(i)
	s := newSource("pod", namespace, i, seed)
	set, hash, owner := a.replicaSet(namespace, seed)
	created := born(i)

	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              set + "-" + podSuffix(s, i),
			GenerateName:      set + "-",
			Namespace:         namespace,
			UID:               s.uid(),
			Generation:        1,
			CreationTimestamp: at(created),
			Labels: map[string]string{
				"app.kubernetes.io/name":       a.name,
				"app.kubernetes.io/instance":   a.name + "-" + namespace,
				"app.kubernetes.io/part-of":    "shop",
				"app.kubernetes.io/managed-by": "fleet",
				"example.com/tier":             a.tier,
				"pod-template-hash":            hash,
			},
			Annotations: map[string]string{
				"example.com/config-checksum": owner.hex(64),
				"example.com/rollout":         fmt.Sprintf("%s/%d", owner.text(8), owner.IntN(400)),
				"prometheus.io/port":          strconv.Itoa(int(a.port)),
				"prometheus.io/scrape":        "true",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: owner.uid(),
				Controller: ptr(true), BlockOwnerDeletion: ptr(true),
			}},
		},
		Spec: podSpec(a, namespace, s),
	}
	pod.Spec.NodeName = NodeName(i / 24)
	pod.Status = podStatus(&pod.Spec, created, s)
	pod.ManagedFields = podManagedFields(a, pod)
	return pod
}

// podSuffix returns a suffix as of a generated name, unique in the namespace.
func podSuffix(s source, i int) string { return s.text(5) + strconv.FormatInt(int64(i), 36) }

func podSpec(a app, namespace string, s source) corev1.PodSpec {
	token := "kube-api-access-" + s.text(5)
	spec := corev1.PodSpec{
		Containers:                    []corev1.Container{mainContainer(a, namespace, token, s)},
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: ptr(int64(30)),
		DNSPolicy:                     corev1.DNSClusterFirst,
		ServiceAccountName:            a.name,
		DeprecatedServiceAccount:      a.name,
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: ptr(true), FSGroup: ptr(int64(10000 + s.IntN(5000)))},
		ImagePullSecrets:              []corev1.LocalObjectReference{{Name: "image-pull"}},
		SchedulerName:                 corev1.DefaultSchedulerName,
		Tolerations: []corev1.Toleration{
			{Key: "example.com/edge", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr(int64(86400))},
			{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr(int64(86400))},
		},
		Priority:           ptr(int32(0)),
		PreemptionPolicy:   ptr(corev1.PreemptLowerPriority),
		EnableServiceLinks: ptr(true),
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: a.name + "-config"}, DefaultMode: ptr(int32(0o644))}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: "/var/lib/shop/" + a.name, Type: ptr(corev1.HostPathDirectoryOrCreate)}}},
			tokenVolume(token),
		},
	}
	if a.sidecar {
		spec.Containers = append(spec.Containers, sidecarContainer(a, namespace, token, s))
	}
	if a.migrate {
		spec.InitContainers = append(spec.InitContainers, migrateContainer(a, namespace, token, s))
	}
	return spec
}

func mainContainer(a app, namespace, token string, s source) corev1.Container {
	c := container(a.name, a.image(s), token)
	c.Args = []string{"--listen=:" + strconv.Itoa(int(a.port)), "--config=/etc/shop/config.yaml", "--instance=" + s.hex(12)}
	c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: a.port, Protocol: corev1.ProtocolTCP}}
	for _, names := range [][]string{commonEnv, a.env} {
		for _, name := range names {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value(name, namespace, s)})
		}
	}
	c.Env = append(c.Env,
		fieldEnv("POD_NAME", "metadata.name"),
		fieldEnv("NODE_NAME", "spec.nodeName"),
		corev1.EnvVar{Name: "DATABASE_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: a.name + "-credentials"}, Key: "password"}}},
	)
	c.Resources = corev1.ResourceRequirements{
		Limits:   resources(fmt.Sprintf("%dm", 200+50*s.IntN(20)), fmt.Sprintf("%dMi", 128+32*s.IntN(20))),
		Requests: resources(fmt.Sprintf("%dm", 20+10*s.IntN(10)), fmt.Sprintf("%dMi", 64+16*s.IntN(4))),
	}
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: "config", MountPath: "/etc/shop", ReadOnly: true},
		corev1.VolumeMount{Name: "data", MountPath: "/var/lib/shop"},
	)
	c.LivenessProbe = probe("/healthz", "http", int32(10+s.IntN(20)))
	c.ReadinessProbe = probe("/readyz", "http", int32(5+s.IntN(10)))
	return c
}

func sidecarContainer(a app, namespace, token string, s source) corev1.Container {
	c := container("link-proxy", fmt.Sprintf("images.example.com/platform/link-proxy:1.%d.%d", 20+s.IntN(6), s.IntN(12)), token)
	c.Args = []string{"--upstream=127.0.0.1:" + strconv.Itoa(int(a.port)), "--identity=" + namespace + "/" + a.name, "--session=" + s.hex(16)}
	c.Ports = []corev1.ContainerPort{{Name: "link", ContainerPort: 15001, Protocol: corev1.ProtocolTCP}}
	for _, name := range []string{"UPLINK_URL", "UPLINK_BUDGET_BYTES"} {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value(name, namespace, s)})
	}
	c.Resources = corev1.ResourceRequirements{Limits: resources("200m", "96Mi"), Requests: resources("10m", "32Mi")}
	c.ReadinessProbe = probe("/ready", "link", int32(5+s.IntN(10)))
	return c
}

func migrateContainer(a app, namespace, token string, s source) corev1.Container {
	c := container("migrate", a.image(s), token)
	c.Command = []string{"/usr/bin/migrate", "--to=" + strconv.Itoa(100+s.IntN(400)), "--lock=" + s.hex(8)}
	for _, name := range []string{"SHOP_ID", "DATABASE_DSN"} {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value(name, namespace, s)})
	}
	c.Resources = corev1.ResourceRequirements{Limits: resources("500m", "128Mi"), Requests: resources("10m", "32Mi")}
	return c
}

// container returns a container with the fields that all containers have, including the apiserver's
// defaults.
func container(name, image, token string) corev1.Container {
	return corev1.Container{
		Name:                     name,
		Image:                    image,
		ImagePullPolicy:          corev1.PullIfNotPresent,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr(false),
			ReadOnlyRootFilesystem:   ptr(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: token, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
	}
}

func probe(path, port string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromString(port), Scheme: corev1.URISchemeHTTP}},
		TimeoutSeconds: 2, PeriodSeconds: period, SuccessThreshold: 1, FailureThreshold: 3,
	}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// tokenVolume returns the volume that admission adds to every pod of a real cluster.
func tokenVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: ptr(int32(0o644)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr(int64(3607)), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		},
	}}}
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory),
	}
}

func ptr[T any](v T) *T { return &v }
