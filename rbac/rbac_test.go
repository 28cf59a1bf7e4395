package rbac

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/config"
)

func of(t *testing.T, resources string) Permissions {
	t.Helper()
	cfg, err := config.Parse("test", []byte("apiVersion: snapcache.dev/v1alpha1\nkind: AgentConfiguration\nstore: {path: x}\nlocalAPI: {socket: y}\nresources:\n"+resources))
	require.NoError(t, err)
	return Of(cfg)
}

// words returns each rule as text.
func words(rules []rbacv1.PolicyRule) []string {
	var all []string
	for _, r := range rules {
		all = append(all, fmt.Sprint(r.Verbs, r.APIGroups, r.Resources, r.ResourceNames))
	}
	return all
}

func TestOf(t *testing.T) {
	const kubeSystem = "[get] [] [namespaces] [kube-system]"
	for _, test := range []struct {
		name      string
		resources string
		cluster   []string
		in        map[string][]string
	}{
		{
			name:      "one",
			resources: "- resource: pods",
			cluster:   []string{"[get list watch] [] [pods] []", kubeSystem},
		},
		{
			name:      "one rule per group; with a selector, none has get",
			resources: "- resource: pods\n  fieldSelector: spec.nodeName=a\n- resource: services\n- resource: deployments.v1.apps\n- resource: configmaps",
			cluster:   []string{"[get list watch] [] [configmaps services] []", "[list watch] [] [pods] []", "[get list watch] [apps] [deployments] []", kubeSystem},
		},
		{
			name:      "some namespaces",
			resources: "- resource: pods\n  namespaces: [shop, till]\n- resource: configmaps\n  namespaces: [shop]\n  labelSelector: a=b\n- resource: nodes",
			cluster:   []string{"[get list watch] [] [nodes] []", kubeSystem},
			in: map[string][]string{
				"shop": {"[get list watch] [] [pods] []", "[list watch] [] [configmaps] []"},
				"till": {"[get list watch] [] [pods] []"},
			},
		},
		{
			name:      "custom resources, and built-in ones of groups with a dot",
			resources: "- resource: widgets.v1.example.com\n- resource: gadgets.example.com\n  namespaces: [shop]\n- resource: endpointslices.discovery.k8s.io",
			cluster: []string{
				"[get list watch] [discovery.k8s.io] [endpointslices] []", "[get list watch] [example.com] [widgets] []", kubeSystem,
				"[get] [apiextensions.k8s.io] [customresourcedefinitions] [gadgets.example.com widgets.example.com]",
			},
			in: map[string][]string{"shop": {"[get list watch] [example.com] [gadgets] []"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.in == nil {
				signed := of(t, test.resources+"\nnodeName: edge-1\nkubernetesAPI: {address: \"127.0.0.1:6445\", signer: kubernetes.io/kubelet-serving}\n")
				require.Equal(t, append(test.cluster, "[create delete get] [certificates.k8s.io] [certificatesigningrequests] []"), words(signed.Cluster))
			}
			r := of(t, test.resources)
			require.Equal(t, test.cluster, words(r.Cluster))
			require.Len(t, r.Namespaced, len(test.in))
			for namespace, want := range test.in {
				require.Equal(t, want, words(r.Namespaced[namespace]))
			}
		})
	}
}

func TestObjects(t *testing.T) {
	all := of(t, "- resource: pods\n  namespaces: [till, shop]").Objects(Account{Name: "edge", Namespace: "system"})
	var kinds []string
	for _, o := range all {
		b, err := yaml.Marshal(o)
		require.NoError(t, err)
		require.NotContains(t, string(b), "null")
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
			Subjects         []rbacv1.Subject
		}
		require.NoError(t, yaml.Unmarshal(b, &head))
		kinds = append(kinds, fmt.Sprint(head.APIVersion, " ", head.Kind, " ", head.Metadata.Namespace, "/", head.Metadata.Name))
		for _, s := range head.Subjects {
			require.Equal(t, rbacv1.Subject{Kind: "ServiceAccount", Name: "edge", Namespace: "system"}, s)
		}
	}
	require.Equal(t, []string{
		"v1 ServiceAccount system/edge",
		"rbac.authorization.k8s.io/v1 ClusterRole /edge", "rbac.authorization.k8s.io/v1 ClusterRoleBinding /edge",
		"rbac.authorization.k8s.io/v1 Role shop/edge", "rbac.authorization.k8s.io/v1 RoleBinding shop/edge",
		"rbac.authorization.k8s.io/v1 Role till/edge", "rbac.authorization.k8s.io/v1 RoleBinding till/edge",
	}, kinds)
}

func TestEach(t *testing.T) {
	all := of(t, "- resource: pods\n  fieldSelector: spec.nodeName=a\n- resource: widgets.example.com\n  namespaces: [till, shop]\n- resource: namespaces").Each()
	read := []string{"get", "list", "watch"}
	require.Equal(t, []Permission{
		{Verbs: read, Resource: "namespaces"},
		{Verbs: []string{"list", "watch"}, Resource: "pods"},
		{Verbs: []string{"get"}, Resource: "namespaces", Name: "kube-system", Namespace: "kube-system"},
		{Verbs: []string{"get"}, Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Name: "widgets.example.com"},
		{Verbs: read, Group: "example.com", Resource: "widgets", Namespace: "shop"},
		{Verbs: read, Group: "example.com", Resource: "widgets", Namespace: "till"},
	}, all)
}
