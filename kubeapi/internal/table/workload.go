package table

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// podTemplate is the part of a pod template that rows show.
type podTemplate struct {
	Spec struct {
		Containers   []container       `json:"containers"`
		NodeSelector map[string]string `json:"nodeSelector"`
	} `json:"spec"`
}

// containers returns the cells with the names and the images of the containers.
func (t *podTemplate) containers() []any {
	var names, images []string
	for _, c := range t.Spec.Containers {
		names, images = append(names, c.Name), append(images, c.Image)
	}
	return []any{strings.Join(names, ","), strings.Join(images, ",")}
}

type replicaStatus struct {
	Replicas          int64 `json:"replicas"`
	ReadyReplicas     int64 `json:"readyReplicas"`
	UpdatedReplicas   int64 `json:"updatedReplicas"`
	AvailableReplicas int64 `json:"availableReplicas"`
}

// workload is a kind with replicas of a pod template.
type workload struct {
	object
	Spec struct {
		Replicas int64                 `json:"replicas"`
		Selector *metav1.LabelSelector `json:"selector"`
		Template podTemplate           `json:"template"`
	} `json:"spec"`
	Status replicaStatus `json:"status"`
}

// ready returns how many replicas are ready, of how many.
func (w *workload) ready() string {
	return fmt.Sprintf("%d/%d", w.Status.ReadyReplicas, w.Spec.Replicas)
}

type deployment struct{ workload }

func (d *deployment) cells(now clock) []any {
	selector := "<invalid>"
	if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
		selector = s.String()
	}
	cells := []any{d.name(), d.ready(), d.Status.UpdatedReplicas, d.Status.AvailableReplicas, d.age(now)}
	return append(append(cells, d.Spec.Template.containers()...), selector)
}

type replicaSet struct{ workload }

func (r *replicaSet) cells(now clock) []any {
	cells := []any{r.name(), r.Spec.Replicas, r.Status.Replicas, r.Status.ReadyReplicas, r.age(now)}
	return append(append(cells, r.Spec.Template.containers()...), metav1.FormatLabelSelector(r.Spec.Selector))
}

type statefulSet struct{ workload }

func (s *statefulSet) cells(now clock) []any {
	return append([]any{s.name(), s.ready(), s.age(now)}, s.Spec.Template.containers()...)
}

type replicationController struct {
	object
	Spec struct {
		Replicas int64             `json:"replicas"`
		Selector map[string]string `json:"selector"`
		Template podTemplate       `json:"template"`
	} `json:"spec"`
	Status replicaStatus `json:"status"`
}

func (r *replicationController) cells(now clock) []any {
	cells := []any{r.name(), r.Spec.Replicas, r.Status.Replicas, r.Status.ReadyReplicas, r.age(now)}
	return append(append(cells, r.Spec.Template.containers()...), labels.FormatLabels(r.Spec.Selector))
}

type daemonSet struct {
	object
	Spec struct {
		Selector *metav1.LabelSelector `json:"selector"`
		Template podTemplate           `json:"template"`
	} `json:"spec"`
	Status struct {
		DesiredNumberScheduled int64 `json:"desiredNumberScheduled"`
		CurrentNumberScheduled int64 `json:"currentNumberScheduled"`
		NumberReady            int64 `json:"numberReady"`
		UpdatedNumberScheduled int64 `json:"updatedNumberScheduled"`
		NumberAvailable        int64 `json:"numberAvailable"`
	} `json:"status"`
}

func (d *daemonSet) cells(now clock) []any {
	s := d.Status
	cells := []any{
		d.name(), s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled,
		s.NumberAvailable, labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), d.age(now),
	}
	return append(append(cells, d.Spec.Template.containers()...), metav1.FormatLabelSelector(d.Spec.Selector))
}

type controllerRevision struct {
	object
	Revision int64 `json:"revision"`
}

func (r *controllerRevision) cells(now clock) []any {
	controller := none
	for _, ref := range r.Metadata.OwnerReferences {
		if ptr.Deref(ref.Controller, false) {
			kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
			controller = strings.ToLower(kind.String()) + "/" + ref.Name
			break
		}
	}
	return []any{r.name(), controller, r.Revision, r.age(now)}
}

type disruptionBudget struct {
	object
	Spec struct {
		MinAvailable   *intstr.IntOrString `json:"minAvailable"`
		MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
	} `json:"spec"`
	Status struct {
		DisruptionsAllowed int64 `json:"disruptionsAllowed"`
	} `json:"status"`
}

func (b *disruptionBudget) cells(now clock) []any {
	without := intstr.FromString("N/A")
	least, most := ptr.Deref(b.Spec.MinAvailable, without), ptr.Deref(b.Spec.MaxUnavailable, without)
	return []any{b.name(), least.String(), most.String(), b.Status.DisruptionsAllowed, b.age(now)}
}
