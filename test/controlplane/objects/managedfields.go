package objects

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listKeys are the lists whose elements have owners of their own, with the fields that are an
// element's key. Any other list has one owner as a whole.
var listKeys = map[string][]string{
	"conditions":       {"type"},
	"containers":       {"name"},
	"env":              {"name"},
	"hostIPs":          {"ip"},
	"imagePullSecrets": {"name"},
	"initContainers":   {"name"},
	"ownerReferences":  {"uid"},
	"podIPs":           {"ip"},
	"ports":            {"containerPort", "protocol"},
	"volumeMounts":     {"mountPath"},
	"volumes":          {"name"},
}

// bare are the fields that have no owner themselves: only the fields in them have.
var bare = map[string]bool{"metadata": true, "spec": true, "status": true, "containers": true, "conditions": true}

// fieldSet returns the set of the fields of a JSON value in the form of fieldsV1.
func fieldSet(field string, v any) map[string]any {
	set := make(map[string]any)
	switch v := v.(type) {
	case map[string]any:
		for name, child := range v {
			set["f:"+name] = fieldSet(name, child)
		}
	case []any:
		keys := listKeys[field]
		for _, item := range v {
			element, ok := item.(map[string]any)
			if !ok || keys == nil {
				return set
			}
			child := fieldSet("", element)
			if field == "ownerReferences" { // each element is owned as a whole, by its key
				child = map[string]any{}
			}
			set["k:"+elementKey(element, keys)] = child
		}
	}
	if len(set) > 0 && !bare[field] {
		set["."] = map[string]any{}
	}
	return set
}

func elementKey(element map[string]any, keys []string) string {
	named := make(map[string]any, len(keys))
	for _, k := range keys {
		named[k] = element[k]
	}
	b, err := json.Marshal(named)
	if err != nil { // it was decoded from JSON: it can be encoded
		return "{}"
	}
	return string(b)
}

// Stand-ins for the values of a pod that are keys in its managedFields.
const (
	ownerStandIn = "@owner@"
	podIPStandIn = "@pod-ip@"
	hostStandIn  = "@host-ip@"
)

// podFields are the fieldsV1 of an application's pods, with stand-ins.
type podFields struct{ controller, kubelet []byte }

// podFieldsByApp caches podFields by the application's name: to compute them takes longer than all
// the rest of a pod.
var podFieldsByApp sync.Map

// podManagedFields returns the managedFields of a pod that kube-controller-manager
// created and kubelet reported on.
func podManagedFields(a app, pod *corev1.Pod) []metav1.ManagedFieldsEntry {
	cached, ok := podFieldsByApp.Load(a.name)
	if !ok {
		cached, _ = podFieldsByApp.LoadOrStore(a.name, newPodFields(pod))
	}
	fields, ok := cached.(podFields)
	if !ok {
		return nil
	}
	replace := func(b []byte, pairs ...string) *metav1.FieldsV1 {
		return &metav1.FieldsV1{Raw: []byte(strings.NewReplacer(pairs...).Replace(string(b)))}
	}
	created := pod.CreationTimestamp
	reported := pod.Status.Conditions[2].LastTransitionTime // Ready
	return []metav1.ManagedFieldsEntry{
		{
			Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			Time: &created, FieldsType: "FieldsV1",
			FieldsV1: replace(fields.controller, ownerStandIn, string(pod.OwnerReferences[0].UID)),
		},
		{
			Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			Time: &reported, FieldsType: "FieldsV1", Subresource: "status",
			FieldsV1: replace(fields.kubelet, podIPStandIn, pod.Status.PodIP, hostStandIn, pod.Status.HostIP),
		},
	}
}

// newPodFields computes an application's podFields from one of its pods.
func newPodFields(pod *corev1.Pod) podFields {
	spec := pod.DeepCopy()
	spec.Status = corev1.PodStatus{}
	spec.OwnerReferences[0].UID = ownerStandIn
	spec.Spec.NodeName = "" // the scheduler's, through the subresource binding
	spec.Spec.Priority, spec.Spec.PreemptionPolicy = nil, nil
	// Admission adds these, and owns nothing.
	spec.Spec.Volumes = spec.Spec.Volumes[:len(spec.Spec.Volumes)-1]
	for _, list := range [][]corev1.Container{spec.Spec.Containers, spec.Spec.InitContainers} {
		for i := range list {
			list[i].VolumeMounts = list[i].VolumeMounts[1:]
		}
	}
	status := &corev1.Pod{Status: *pod.Status.DeepCopy()}
	status.Status.PodIP, status.Status.PodIPs[0].IP = podIPStandIn, podIPStandIn
	status.Status.HostIP, status.Status.HostIPs[0].IP = hostStandIn, hostStandIn
	return podFields{
		controller: encodeFields(spec, []string{"labels", "annotations", "generateName", "ownerReferences"}, "spec"),
		kubelet:    encodeFields(status, nil, "status"),
	}
}

// encodeFields returns the fieldsV1 of some of an object's metadata and of one
// of its other fields.
func encodeFields(object any, metadata []string, field string) []byte {
	var tree map[string]any
	b, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(b, &tree)
	}
	if err != nil { // not possible with the types of k8s.io/api
		return []byte("{}")
	}
	owned := map[string]any{field: tree[field]}
	if all, ok := tree["metadata"].(map[string]any); ok && metadata != nil {
		some := make(map[string]any)
		for _, name := range metadata {
			some[name] = all[name]
		}
		owned["metadata"] = some
	}
	set := fieldSet("", owned)
	delete(set, ".")
	if b, err = json.Marshal(set); err != nil {
		return []byte("{}")
	}
	return bytes.TrimSpace(b)
}
