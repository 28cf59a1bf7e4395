package config

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProfileNode(t *testing.T) {
	setHome(t)
	t.Setenv("NODE_NAME", "edge-1")
	var names []string
	for _, r := range mustParse(t, "../examples/node/agent.yaml").Resources {
		names = append(names, r.Resource.String())
	}
	require.Equal(t, []string{
		"nodes", "pods", "configmaps", "services", "endpointslices.discovery.k8s.io", "namespaces",
		"servicecidrs.networking.k8s.io", "runtimeclasses.node.k8s.io",
		"persistentvolumeclaims", "persistentvolumes", "volumeattachments.storage.k8s.io", "csidrivers.storage.k8s.io", "csinodes.storage.k8s.io",
		"serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
		"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	}, names)
}

// TestProfile_ListedResources checks that an entry of the file takes the place of the profile's, also
// under its name without the group, and that others are added.
func TestProfile_ListedResources(t *testing.T) {
	setHome(t)
	c, err := Parse("agent.yaml", []byte(header+`
profile: node
nodeName: edge-1
resources:
- resource: pods.v1
  namespaces: [shop]
- resource: endpointslices
- resource: configmaps.example.com
`))
	require.NoError(t, err)
	count := map[string]int{}
	for _, r := range c.Resources {
		count[r.Resource.Resource]++
		require.Equal(t, StalenessWarn, r.Staleness.Policy, r.Resource)
	}
	require.Len(t, c.Resources, len(nodeResources(""))+1)
	require.Equal(t, Resource{
		Resource: ResourceName{Resource: "pods", Version: "v1"}, Namespaces: []string{"shop"}, Staleness: Staleness{Policy: StalenessWarn},
	}, c.Resources[0])
	require.Equal(t, 1, count["pods"])
	require.Equal(t, 1, count["endpointslices"])
	require.Equal(t, 2, count["configmaps"])
	checkStable(t, c)
}

func TestProfile_EmptyList(t *testing.T) {
	setHome(t)
	c, err := Parse("agent.yaml", []byte(header+"profile: node\nnodeName: edge-1\nresources: []\n"))
	require.NoError(t, err)
	require.Len(t, c.Resources, len(nodeResources("")))
}

func TestNodeName(t *testing.T) {
	for _, test := range []struct {
		name       string
		configured string
		variable   string
		host       string
		err        error
		want       string
	}{
		{name: "configured", configured: "a", variable: "b", host: "c", want: "a"},
		{name: "variable", variable: "b", host: "c", want: "b"},
		{name: "host", host: " Edge-1.Example.com\n", want: "edge-1.example.com"},
		{name: "none", err: errors.New("no name")},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &AgentConfiguration{Profile: ProfileNode, NodeName: test.configured}
			c.setDefaults(surroundings{
				getenv:   func(name string) string { return map[string]string{"NODE_NAME": test.variable}[name] },
				hostname: func() (string, error) { return test.host, test.err },
			})
			require.Equal(t, test.want, c.NodeName)
			require.Equal(t, "pods", c.Resources[1].Resource.String())
			require.Equal(t, fmt.Sprintf("spec.nodeName=%s", test.want), c.Resources[1].FieldSelector)
		})
	}
	t.Run("without a profile", func(t *testing.T) {
		c := &AgentConfiguration{}
		c.setDefaults(surroundings{getenv: func(string) string { return "b" }})
		require.Empty(t, c.NodeName)
		c.KubernetesAPI.Signer = "example.com/serving"
		c.setDefaults(surroundings{getenv: func(string) string { return "b" }})
		require.Empty(t, c.NodeName, "it is not needed")
		c.KubernetesAPI.Signer = SignerKubeletServing
		c.setDefaults(surroundings{getenv: func(string) string { return "b" }})
		require.Equal(t, "b", c.NodeName)
	})
}
