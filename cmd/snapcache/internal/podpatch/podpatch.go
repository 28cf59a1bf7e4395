// Package podpatch makes the strategic merge patch with which the pods of a workload read from the agent of
// their own node, and the one that takes it back.
package podpatch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// The environment that clients in a pod find the kube-apiserver by, and the directory of their credentials.
const (
	hostVariable = "KUBERNETES_SERVICE_HOST"
	portVariable = "KUBERNETES_SERVICE_PORT"
	accountDir   = "/var/run/secrets/kubernetes.io/serviceaccount"
)

const (
	hostIP = "status.hostIP" // the field with the address of a pod's node

	volumeName = "snapcache-service-account"

	tokenSeconds = 3607 // the lifetime of the token that each pod has
)

// Options are the settings of a patch.
type Options struct {
	Port      int    // of the agents
	ConfigMap string // with the authority of the agents in ca.crt; empty for the cluster's
}

// Change is a change of a container. Before and After are for people.
type Change struct {
	Container, Field, Before, After string
}

// String returns a line for people.
func (c Change) String() string {
	if c.Before == c.After {
		return fmt.Sprintf("container %s: %s: %s (unchanged)", c.Container, c.Field, c.After)
	}
	return fmt.Sprintf("container %s: %s: %s -> %s", c.Container, c.Field, c.Before, c.After)
}

// ErrNotPatched means that there is nothing to take back.
var ErrNotPatched = errors.New("no container reads from the agent of its node")

// ForeignError means that a container has a value that an undo could not restore.
type ForeignError struct {
	Container, Field, Value string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("container %s sets %s itself, to %s: it would be lost", e.Container, e.Field, e.Value)
}

// object is a part of a patch.
type object = map[string]any

// Apply returns the patch of a workload with a template, and its changes.
func Apply(template *corev1.PodTemplateSpec, o Options) (patch any, changes []Change, err error) {
	var errs []error
	pod := object{}
	each(template, func(list string, c *corev1.Container) {
		env, changed, err := applyEnv(c, strconv.Itoa(o.Port))
		part := object{"name": c.Name, "env": env}
		if err == nil && o.ConfigMap != "" {
			var mount Change
			mount, err = applyMount(c, o.ConfigMap, configMapOf(template))
			part["volumeMounts"] = []object{{"mountPath": accountDir, "name": volumeName, "readOnly": true}}
			changed = append(changed, mount)
		}
		errs = append(errs, err)
		changes = append(changes, changed...)
		add(pod, list, part)
	})
	if o.ConfigMap != "" {
		if automount := template.Spec.AutomountServiceAccountToken; automount != nil && !*automount {
			errs = append(errs, errors.New("its pods have no token (automountServiceAccountToken: false), "+
				"and do not use the Kubernetes API by themselves"))
		}
		pod["volumes"] = []object{volume(o.ConfigMap)}
	}
	return inTemplate(pod), changes, errors.Join(errs...)
}

// Undo returns the patch that takes an applied patch back, and its changes. The error is [ErrNotPatched] if
// there is none.
func Undo(template *corev1.PodTemplateSpec) (patch any, changes []Change, err error) {
	pod := object{}
	each(template, func(list string, c *corev1.Container) {
		part := object{"name": c.Name}
		if host := variable(c, hostVariable); isHostIP(host) {
			env := []object{{"name": hostVariable, "$patch": "delete"}}
			changes = append(changes, Change{c.Name, hostVariable, describe(host), describe(nil)})
			if port := variable(c, portVariable); port != nil {
				env = append(env, object{"name": portVariable, "$patch": "delete"})
				changes = append(changes, Change{c.Name, portVariable, describe(port), describe(nil)})
			}
			part["env"] = env
		}
		if m := mountOf(c); m != nil && m.Name == volumeName {
			part["volumeMounts"] = []object{{"mountPath": accountDir, "$patch": "delete"}}
			changes = append(changes,
				Change{c.Name, accountDir, "the CA of ConfigMap " + configMapOf(template), "the cluster's CA"})
		}
		if len(part) > 1 {
			add(pod, list, part)
		}
	})
	if slices.ContainsFunc(template.Spec.Volumes, isOurs) {
		pod["volumes"] = []object{{"name": volumeName, "$patch": "delete"}}
	}
	if len(pod) == 0 {
		return nil, nil, ErrNotPatched
	}
	return inTemplate(pod), changes, nil
}

// each calls f with each container, and the field that has it.
func each(template *corev1.PodTemplateSpec, f func(list string, c *corev1.Container)) {
	for i := range template.Spec.InitContainers {
		f("initContainers", &template.Spec.InitContainers[i])
	}
	for i := range template.Spec.Containers {
		f("containers", &template.Spec.Containers[i])
	}
}

func add(pod object, list string, container object) {
	all, _ := pod[list].([]object)
	pod[list] = append(all, container)
}

func inTemplate(pod object) any {
	return object{"spec": object{"template": object{"spec": pod}}}
}

// applyEnv returns the environment that a container gets. It returns an error if the container has set
// another one.
func applyEnv(c *corev1.Container, port string) ([]object, []Change, error) {
	host, before := variable(c, hostVariable), variable(c, portVariable)
	switch {
	case host != nil && !isHostIP(host):
		return nil, nil, &ForeignError{c.Name, hostVariable, describe(host)}
	case before != nil && (host == nil || before.ValueFrom != nil):
		return nil, nil, &ForeignError{c.Name, portVariable, describe(before)}
	}
	wantHost := object{"name": hostVariable, "valueFrom": object{"fieldRef": object{"fieldPath": hostIP}}}
	return []object{wantHost, {"name": portVariable, "value": port}}, []Change{
		{c.Name, hostVariable, describe(host), describe(&corev1.EnvVar{ValueFrom: nodeAddress})},
		{c.Name, portVariable, describe(before), describe(&corev1.EnvVar{Value: port})},
	}, nil
}

var nodeAddress = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: hostIP}}

func applyMount(c *corev1.Container, configMap, before string) (Change, error) {
	m := mountOf(c)
	if m != nil && m.Name != volumeName {
		return Change{}, &ForeignError{c.Name, accountDir, "the volume " + m.Name}
	}
	change := Change{c.Name, accountDir, "the cluster's CA", "the CA of ConfigMap " + configMap}
	if m != nil {
		change.Before = "the CA of ConfigMap " + before
	}
	return change, nil
}

// volume returns the volume that a pod has by default, with the authority of another ConfigMap.
func volume(configMap string) object {
	return object{"name": volumeName, "projected": object{"sources": []object{
		{"serviceAccountToken": object{"path": "token", "expirationSeconds": tokenSeconds}},
		{"configMap": object{"name": configMap, "items": []object{{"key": "ca.crt", "path": "ca.crt"}}}},
		{"downwardAPI": object{"items": []object{
			{"path": "namespace", "fieldRef": object{"fieldPath": "metadata.namespace"}},
		}}},
	}}}
}

func isOurs(v corev1.Volume) bool { return v.Name == volumeName }

// configMapOf returns the ConfigMap of the volume in a template; empty for none.
func configMapOf(template *corev1.PodTemplateSpec) string {
	i := slices.IndexFunc(template.Spec.Volumes, isOurs)
	if i < 0 || template.Spec.Volumes[i].Projected == nil {
		return ""
	}
	for _, s := range template.Spec.Volumes[i].Projected.Sources {
		if s.ConfigMap != nil {
			return s.ConfigMap.Name
		}
	}
	return ""
}

// mountOf returns the mount of the credentials in a container; nil for the one that each pod gets.
func mountOf(c *corev1.Container) *corev1.VolumeMount {
	i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == accountDir })
	if i < 0 {
		return nil
	}
	return &c.VolumeMounts[i]
}

func variable(c *corev1.Container, name string) *corev1.EnvVar {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Env[i]
}

func isHostIP(e *corev1.EnvVar) bool {
	return e != nil && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == hostIP
}

// describe returns a text for the value of a variable, nil for one that the pod gets from its kubelet.
func describe(e *corev1.EnvVar) string {
	switch {
	case e == nil:
		return "the cluster's"
	case isHostIP(e):
		return "the node's (" + hostIP + ")"
	case e.ValueFrom != nil:
		return "a reference"
	}
	return cmp.Or(e.Value, `""`)
}
