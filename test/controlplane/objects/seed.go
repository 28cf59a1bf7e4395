package objects

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/snapcache/snapcache/test/controlplane"
)

// seedWorkers is the number of concurrent requests.
const seedWorkers = 16

// SeedOptions are the numbers of objects of each kind. Object number i is in namespace number
// i modulo Namespaces.
type SeedOptions struct {
	Pods           int // two requests each, about 8 ms: see SeedPodsDirect for thousands
	ConfigMaps     int
	Secrets        int
	Services       int
	EndpointSlices int
	Deployments    int
	Nodes          int
	Widgets        int   // of the definition WidgetCRD, which is created first
	Namespaces     int   // shop-0000 and so on; 0 means 10
	Seed           int64 // of the objects' contents
}

// Seed creates objects through the apiserver, as the clients of a real cluster do. Existing objects
// are left unchanged.
func Seed(ctx context.Context, cp *controlplane.ControlPlane, o SeedOptions) error {
	if o.Namespaces == 0 {
		o.Namespaces = 10
	}
	s, err := newSeeder(cp.RESTConfig(controlplane.Admin), o.Seed)
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if o.Widgets > 0 {
		if err := InstallWidgets(ctx, cp.RESTConfig(controlplane.Admin)); err != nil {
			return err
		}
	}
	for _, kind := range []struct {
		name   string
		count  int
		create func(ctx context.Context, namespace string, i int) error
	}{
		{"namespaces", o.Namespaces, s.namespace},
		{"nodes", o.Nodes, s.node},
		{"configmaps", o.ConfigMaps, s.configMap},
		{"secrets", o.Secrets, s.secret},
		{"services", o.Services, s.service},
		{"endpointslices", o.EndpointSlices, s.endpointSlice},
		{"deployments", o.Deployments, s.deployment},
		{"pods", o.Pods, s.pod},
		{"widgets", o.Widgets, s.widget},
	} {
		err := parallel(ctx, seedWorkers, kind.count, func(ctx context.Context, i int) error {
			err := kind.create(ctx, Namespace(i%o.Namespaces), i)
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("seed %s: %w", kind.name, err)
		}
	}
	return nil
}

// seeder creates single objects. Its clients have the user agents of the components that
// create the objects in a real cluster: the apiserver writes them into managedFields.
type seeder struct {
	seed       int64
	controller kubernetes.Interface
	kubelet    kubernetes.Interface
	deployer   kubernetes.Interface
	widgets    dynamic.NamespaceableResourceInterface
}

func newSeeder(config *rest.Config, seed int64) (*seeder, error) {
	s := &seeder{seed: seed}
	for _, c := range []struct {
		agent string
		to    *kubernetes.Interface
	}{
		{"kube-controller-manager", &s.controller},
		{"kubelet", &s.kubelet},
		{"fleet-agent", &s.deployer},
	} {
		// Protobuf costs the apiserver a fraction of JSON's cost.
		typed := rest.CopyConfig(config)
		typed.UserAgent = c.agent + "/v1.36.3 (linux/amd64)"
		typed.ContentType = runtime.ContentTypeProtobuf
		client, err := kubernetes.NewForConfig(typed)
		if err != nil {
			return nil, err
		}
		*c.to = client
	}
	custom := rest.CopyConfig(config)
	custom.UserAgent = "widget-controller/v1"
	client, err := dynamic.NewForConfig(custom)
	if err != nil {
		return nil, err
	}
	s.widgets = client.Resource(WidgetResource)
	return s, nil
}

func (s *seeder) namespace(ctx context.Context, _ string, i int) error {
	_, err := s.deployer.CoreV1().Namespaces().Create(ctx, namespaceObject(i, s.seed), metav1.CreateOptions{})
	return err
}

func (s *seeder) node(ctx context.Context, _ string, i int) error {
	_, err := s.kubelet.CoreV1().Nodes().Create(ctx, Node(i, s.seed), metav1.CreateOptions{})
	return err
}

func (s *seeder) configMap(ctx context.Context, namespace string, i int) error {
	_, err := s.deployer.CoreV1().ConfigMaps(namespace).Create(ctx, ConfigMap(namespace, i, s.seed), metav1.CreateOptions{})
	return err
}

func (s *seeder) secret(ctx context.Context, namespace string, i int) error {
	_, err := s.deployer.CoreV1().Secrets(namespace).Create(ctx, Secret(namespace, i, s.seed), metav1.CreateOptions{})
	return err
}

func (s *seeder) service(ctx context.Context, namespace string, i int) error {
	_, err := s.deployer.CoreV1().Services(namespace).Create(ctx, Service(namespace, i, s.seed), metav1.CreateOptions{})
	return err
}

func (s *seeder) endpointSlice(ctx context.Context, namespace string, i int) error {
	_, err := s.controller.DiscoveryV1().EndpointSlices(namespace).Create(ctx, EndpointSlice(namespace, i, s.seed), metav1.CreateOptions{})
	return err
}

func (s *seeder) deployment(ctx context.Context, namespace string, i int) error {
	_, err := s.deployer.AppsV1().Deployments(namespace).Create(ctx, Deployment(namespace, i, s.seed), metav1.CreateOptions{})
	return err
}

func (s *seeder) pod(ctx context.Context, namespace string, i int) error {
	pod := Pod(namespace, i, s.seed)
	status := pod.Status
	pod.ManagedFields = nil // the apiserver writes them
	created, err := s.controller.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Status = status
	_, err = s.kubelet.CoreV1().Pods(namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

func (s *seeder) widget(ctx context.Context, namespace string, i int) error {
	widgets := s.widgets.Namespace(namespace)
	o, err := widgets.Create(ctx, Widget(namespace, i, s.seed), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// On kine a conflict has been seen for an object of a definition that was deleted and created again.
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o.Object["status"] = widgetStatus(newSource("widgetstatus", namespace, i, s.seed))
		_, err := widgets.UpdateStatus(ctx, o, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			if now, missing := widgets.Get(ctx, o.GetName(), metav1.GetOptions{}); missing == nil {
				o = now
			}
		}
		return err
	})
}

// namespaceObject returns the namespace of shop number i as the apiserver stores it.
func namespaceObject(i int, seed int64) *corev1.Namespace {
	s := newSource("namespace", "", i, seed)
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: Namespace(i), UID: s.uid(), CreationTimestamp: at(0),
			Labels: map[string]string{corev1.LabelMetadataName: Namespace(i), "example.com/country": s.from("se", "de", "fr", "us")},
		},
		Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

// InstallWidgets creates the definition [WidgetCRD], unless it exists, and waits
// until widgets are served.
func InstallWidgets(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("install widgets: %w", err)
	}
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := WidgetCRD()
	_, err = definitions.Create(ctx, definition, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("install widgets: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		got, err := definitions.Get(ctx, definition.GetName(), metav1.GetOptions{})
		if err != nil || !established(got) {
			return false, err
		}
		_, err = client.Resource(WidgetResource).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("install widgets: not served: %w", err)
	}
	return nil
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, err := unstructured.NestedSlice(definition.Object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}
