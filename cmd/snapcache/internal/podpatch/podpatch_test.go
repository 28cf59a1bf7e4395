package podpatch

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// parse returns a DaemonSet with a pod's spec, in YAML.
func parse(t *testing.T, spec string) *appsv1.DaemonSet {
	t.Helper()
	d := &appsv1.DaemonSet{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &d.Spec.Template.Spec))
	return d
}

// patched applies a patch by the rules of a strategic merge patch that it needs. That a kube-apiserver agrees is for
// TestPatch in test/kubeapi.
func patched(t *testing.T, d *appsv1.DaemonSet, patch any) *appsv1.DaemonSet {
	t.Helper()
	var values [2]any
	for i, v := range []any{d, patch} {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &values[i]))
	}
	after, err := json.Marshal(merged("", values[0], values[1]))
	require.NoError(t, err)
	out := &appsv1.DaemonSet{}
	require.NoError(t, json.Unmarshal(after, out))
	return out
}

// mergeKeys are the fields that identify the elements of lists. Other lists are replaced.
var mergeKeys = map[string]string{
	"containers": "name", "initContainers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath",
}

func merged(field string, before, patch any) any {
	switch patch := patch.(type) {
	case map[string]any:
		all, ok := before.(map[string]any)
		if !ok {
			all = map[string]any{}
		}
		for k, v := range patch {
			if all[k] = merged(k, all[k], v); all[k] == nil {
				delete(all, k)
			}
		}
		return all
	case []any:
		key := mergeKeys[field]
		if key == "" {
			return patch
		}
		all, _ := before.([]any)
		for _, element := range patch {
			e := element.(map[string]any)
			i := slices.IndexFunc(all, func(o any) bool { return o.(map[string]any)[key] == e[key] })
			switch {
			case e["$patch"] == "delete":
				all = slices.Delete(all, i, i+1)
			case i >= 0:
				all[i] = merged("", all[i], e)
			default:
				all = append(all, e)
			}
		}
		if len(all) == 0 {
			return nil
		}
		return all
	}
	return patch
}

const plain = `
initContainers:
- {name: wait, image: a}
containers:
- name: till
  image: b
  env: [{name: KUBERNETES_SERVICE_PORT_HTTPS, value: "1"}, {name: A, value: b}]
  volumeMounts: [{name: data, mountPath: /data}]
- {name: side, image: c}
volumes: [{name: data, emptyDir: {}}]
`

// TestPatch: a patch changes only the address and, on demand, the authority; it can be applied again with
// other values, and the undo leaves the object as it was.
func TestPatch(t *testing.T) {
	for name, o := range map[string]Options{"address": {Port: 6445}, "address and authority": {Port: 443, ConfigMap: "fleet-ca"}} {
		t.Run(name, func(t *testing.T) {
			d := parse(t, plain)
			patch, changes, err := Apply(&d.Spec.Template, o)
			require.NoError(t, err)
			after := patched(t, d, patch)
			for _, c := range append(after.Spec.Template.Spec.Containers, after.Spec.Template.Spec.InitContainers...) {
				require.Equal(t, "status.hostIP", variable(&c, hostVariable).ValueFrom.FieldRef.FieldPath)
				require.Equal(t, strconv.Itoa(o.Port), variable(&c, portVariable).Value)
				require.Equal(t, o.ConfigMap != "", mountOf(&c) != nil)
			}
			require.Equal(t, o.ConfigMap, configMapOf(&after.Spec.Template))
			require.Len(t, changes, map[string]int{"": 6, "fleet-ca": 9}[o.ConfigMap])
			require.Contains(t, changes[0].String(), "container wait: KUBERNETES_SERVICE_HOST: the cluster's -> the node's (status.hostIP)")

			again, changes, err := Apply(&after.Spec.Template, o)
			require.NoError(t, err)
			require.Equal(t, patch, again)
			require.Equal(t, after, patched(t, after, again))
			require.Contains(t, changes[0].String(), "(unchanged)")
			other, _, err := Apply(&after.Spec.Template, Options{Port: 1, ConfigMap: "other"})
			require.NoError(t, err)
			moved := patched(t, after, other)
			require.Equal(t, "1", variable(&moved.Spec.Template.Spec.Containers[1], portVariable).Value)
			require.Equal(t, "other", configMapOf(&moved.Spec.Template))

			for _, done := range []*appsv1.DaemonSet{after, moved} {
				undo, changes, err := Undo(&done.Spec.Template)
				require.NoError(t, err)
				require.Equal(t, d, patched(t, done, undo))
				require.NotEmpty(t, changes)
			}
			_, _, err = Undo(&d.Spec.Template)
			require.ErrorIs(t, err, ErrNotPatched)
		})
	}
}

// TestForeign: values that an undo could not restore are refused, and an undo leaves them.
func TestForeign(t *testing.T) {
	for name, tc := range map[string]struct{ container, want string }{
		"host":          {"env: [{name: KUBERNETES_SERVICE_HOST, value: 10.0.0.1}]", "container till sets KUBERNETES_SERVICE_HOST itself, to 10.0.0.1"},
		"host by field": {"env: [{name: KUBERNETES_SERVICE_HOST, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]", "to a reference"},
		"port":          {"env: [{name: KUBERNETES_SERVICE_PORT, value: '443'}]", "sets KUBERNETES_SERVICE_PORT itself, to 443"},
		"mount": {"volumeMounts: [{name: own, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]",
			"sets /var/run/secrets/kubernetes.io/serviceaccount itself, to the volume own"},
	} {
		t.Run(name, func(t *testing.T) {
			d := parse(t, "containers:\n- {name: side}\n- name: till\n  "+tc.container+"\n")
			_, _, err := Apply(&d.Spec.Template, Options{Port: 6445, ConfigMap: "fleet-ca"})
			require.ErrorContains(t, err, tc.want)
			var foreign *ForeignError
			require.ErrorAs(t, err, &foreign)
			_, _, err = Undo(&d.Spec.Template)
			require.ErrorIs(t, err, ErrNotPatched)
		})
	}
	d := parse(t, plain)
	d.Spec.Template.Spec.AutomountServiceAccountToken = new(bool)
	_, _, err := Apply(&d.Spec.Template, Options{Port: 6445, ConfigMap: "fleet-ca"})
	require.ErrorContains(t, err, "automountServiceAccountToken: false")
}

// TestVolume: the volume has the files that each pod gets by default.
func TestVolume(t *testing.T) {
	raw, err := yaml.Marshal(volume("fleet-ca"))
	require.NoError(t, err)
	var v corev1.Volume
	require.NoError(t, yaml.UnmarshalStrict(raw, &v))
	var paths []string
	for _, s := range v.Projected.Sources {
		switch {
		case s.ServiceAccountToken != nil:
			paths = append(paths, s.ServiceAccountToken.Path)
		case s.ConfigMap != nil:
			paths = append(paths, s.ConfigMap.Items[0].Path)
		case s.DownwardAPI != nil:
			paths = append(paths, s.DownwardAPI.Items[0].Path)
		}
	}
	require.Equal(t, []string{"token", "ca.crt", "namespace"}, paths)
}
