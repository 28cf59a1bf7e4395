package kubectl

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFind(t *testing.T) {
	all := []*resource{
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, singular: "pod", kind: "Pod", shortNames: []string{"po"}, categories: []string{"all"}, namespaced: true},
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "events"}, singular: "event", kind: "Event", shortNames: []string{"ev"}, namespaced: true},
		{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, singular: "deployment", kind: "Deployment", shortNames: []string{"deploy"}, categories: []string{"all"}},
		{GroupVersionResource: schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}, singular: "event", kind: "Event", shortNames: []string{"ev"}},
		{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "po"}, singular: "po", kind: "Po"},
		{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "po"}, singular: "po", kind: "Po", shortNames: []string{"deploy"}},
	}
	for _, tc := range []struct{ name, want, warning string }{
		{name: "pods", want: "/v1, Resource=pods"},
		{name: "pod", want: "/v1, Resource=pods"},
		{name: "PODS", want: "/v1, Resource=pods"},
		{name: "Pod", want: "/v1, Resource=pods"},
		{name: "po", want: "example.com/v2, Resource=po"}, // a name counts more than a short name
		{name: "po.v1.example.com", want: "example.com/v1, Resource=po"},
		{name: "deploy", want: "apps/v1, Resource=deployments", warning: `short name "deploy" could also match lower priority resource po.example.com`},
		{name: "deploy.app", want: "apps/v1, Resource=deployments"},
		{name: "Deployment.v1.apps", want: "apps/v1, Resource=deployments"},
		{name: "events", want: "/v1, Resource=events"},
		{name: "events.events.k8s.io", want: "events.k8s.io/v1, Resource=events"},
		{name: "ev", want: "/v1, Resource=events", warning: `short name "ev" could also match lower priority resource events.events.k8s.io`},
		{name: "DEPLOY"},
		{name: "pods.v1"},
		{name: "nope"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			warning := ""
			r, err := resources{all, func(text string) { warning = text }}.find(tc.name)
			require.Equal(t, tc.warning, warning)
			if tc.want == "" {
				require.EqualError(t, err, tc.name+" is not cached: there is deployments.apps, events, events.events.k8s.io, po.example.com, pods")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, r.String())
		})
	}
	of, err := resources{all: all}.parseTypes("all,pods")
	require.NoError(t, err)
	require.Equal(t, []*resource{all[0], all[2]}, of)
}
