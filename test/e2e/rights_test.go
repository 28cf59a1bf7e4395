package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

const rightsResources = `
- resource: configmaps
- resource: pods
  fieldSelector: spec.nodeName!=nowhere
- resource: widgets.example.com
  namespaces: [shop-0001]
`

var rightsIDs = []string{"configmaps", "pods", "widgets.example.com@shop-0001"}

// TestRights grants a service account the rules that `config rbac` prints, on a server with RBAC:
// the agent lists, watches, verifies, repairs and resumes with only these. If one verb is missing,
// the agent reports which, and so does `config check`.
func TestRights(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 60, Pods: 30, Widgets: 60, Namespaces: 3}))
	harness.Kubectl(t, cp, "create", "namespace", "edge")

	t.Run("all", func(t *testing.T) {
		x := rightsSite(t, cp, "all", "", "")
		checked := x.checkConfig()
		require.Zero(t, checked.Code, checked.Stderr)
		require.Contains(t, string(checked.Stdout), "3 resources, all served by "+cp.URL()+", which grants all permissions")
		a := x.start()
		a.requireIdentified("uid:")
		for i := range rightsIDs[:2] {
			a.requireServers(cp, rightsIDs[i])
		}
		r, _ := x.verify()
		require.Zero(t, r.Code, r.Stderr)
		a.stop()
		for _, id := range rightsIDs {
			x.tamper(id, driftOfEachKind(t, false))
		}
		a = x.start()
		for id, c := range a.awaitCaughtUp(anywhere(rightsIDs...)) {
			require.Zero(t, c.Lists, "%s was resumed", id)
		}
		r, all := x.verify("--repair")
		require.Zero(t, r.Code, r.Stderr)
		for _, v := range all {
			require.EqualValues(t, 2, v.Drift(), v.Collection)
			require.EqualValues(t, 2, v.Repaired, v.Collection)
		}
		a.stop()
		log := harness.ReadFile(t, x.log)
		require.NotContains(t, strings.ToLower(string(log)), "forbid")
	})

	for _, verb := range []string{"list", "watch"} {
		for _, tc := range []struct{ resource, id string }{{"configmaps", "configmaps"}, {"pods", "pods"}, {"widgets", "widgets.example.com@shop-0001"}} {
			t.Run("no "+verb+" on "+tc.resource, func(t *testing.T) {
				x := rightsSite(t, cp, "no-"+verb+"-"+tc.resource, tc.resource, verb)
				where := map[string]string{
					"configmaps": "configmaps in all of the cluster", "pods": "pods in all of the cluster",
					"widgets": "widgets.example.com in the namespace shop-0001",
				}
				x.requireMissing(cp, verb+" on "+where[tc.resource]+": it can't be cached")
				a := x.start()
				want := `cannot ` + verb + ` resource "` + tc.resource + `"`
				a.await(want, func(s *localapi.Status) string {
					if c := collections(s)[tc.id]; !strings.Contains(c.Problem, want) || c.ProblemKind != "forbidden" {
						return "the problem is " + c.Problem
					}
					return ""
				})
				a.awaitCaughtUp(anywhere(slices.DeleteFunc(slices.Clone(rightsIDs), func(other string) bool { return other == tc.id })...))
				a.stop()
			})
		}
	}

	t.Run("no get on configmaps", func(t *testing.T) {
		x := rightsSite(t, cp, "no-get-configmaps", "configmaps", "get")
		x.requireMissing(cp, "get on configmaps in all of the cluster: objects that are corrupt or differ can't be fetched again")
		a := x.start()
		a.awaitCaughtUp(anywhere(rightsIDs...))
		a.stop()
		x.tamper("configmaps", driftOfEachKind(t, false))
		a = x.start()
		a.awaitCaughtUp(anywhere(rightsIDs...))
		r, all := x.verify("--repair")
		require.NotZero(t, r.Code)
		i := slices.IndexFunc(all, func(v localapi.Verification) bool { return v.Collection == "configmaps" })
		require.Contains(t, all[i].Problem, `cannot get resource "configmaps"`)
		a.stop()
	})

	t.Run("no get on kube-system", func(t *testing.T) {
		x := rightsSite(t, cp, "no-get-kube-system", "namespaces", "get")
		x.requireMissing(cp, "get on namespaces kube-system: the cluster will be identified by its CA and address")
		a := x.start()
		a.requireIdentified("ca:")
		a.stop()
	})

	t.Run("no get on the definition", func(t *testing.T) {
		x := rightsSite(t, cp, "no-get-definition", "customresourcedefinitions", "get")
		x.requireMissing(cp, "get on customresourcedefinitions.apiextensions.k8s.io widgets.example.com: a change of its schema will not be noticed")
		a := x.start()
		a.awaitCaughtUp(anywhere(rightsIDs...))
		a.stop()
		log := harness.ReadFile(t, x.log)
		require.Contains(t, string(log), "grant get on customresourcedefinitions")
	})
}

// TestConfigCheckRights runs `config check` for users that lack some rights.
func TestConfigCheckRights(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{resources: withSecrets + "- resource: pods\n  namespaces: [shop-0001, shop-0002]\n", consent: true})
	secrets := "get, list, watch on secrets in all of the cluster: it can't be cached"

	x.kubeconfig = harness.Kubeconfig(t, cp, controlplane.Admin)
	r := x.checkConfig()
	require.Zero(t, r.Code, r.Stderr)
	x.kubeconfig = harness.Kubeconfig(t, cp, controlplane.Reader)
	x.requireMissing(cp, secrets)
	x.kubeconfig = harness.Kubeconfig(t, cp, controlplane.Stranger)
	x.requireMissing(cp, "get, list, watch on configmaps in all of the cluster: it can't be cached", secrets,
		"get, list, watch on services in all of the cluster: it can't be cached",
		"get on namespaces kube-system: the cluster will be identified by its CA and address",
		"get, list, watch on pods in the namespace shop-0001: it can't be cached",
		"get, list, watch on pods in the namespace shop-0002: it can't be cached")

	r = x.run("config", "check", "--config", x.config)
	require.Zero(t, r.Code, "without --kubeconfig no server is asked: %s", r.Stderr)
	require.NotContains(t, string(r.Stdout), "rights")
}

// checkConfig checks the configuration, with the rights of the agent's user.
func (x *site) checkConfig() harness.Result {
	x.t.Helper()
	return x.run("config", "check", "--config", x.config, "--kubeconfig", x.kubeconfig)
}

// requireMissing requires config check to name exactly these missing rights.
func (x *site) requireMissing(cp *controlplane.ControlPlane, rights ...string) {
	x.t.Helper()
	var want strings.Builder
	for _, right := range rights {
		want.WriteString("snapcache: " + cp.URL() + " does not grant " + right + "\n")
	}
	want.WriteString("snapcache: the configuration is valid, but rights are missing: snapcache config rbac prints the manifest that grants them\n")
	r := x.checkConfig()
	require.Equal(x.t, 1, r.Code, "exit code of config check")
	require.Empty(x.t, r.Stdout)
	require.Equal(x.t, want.String(), r.Stderr)
}

// requireIdentified requires all collections to be of a cluster that is identified by its UID, or
// by its CA.
func (a *agent) requireIdentified(by string) {
	a.t.Helper()
	for id, c := range a.awaitCaughtUp(anywhere(rightsIDs...)) {
		require.True(a.t, strings.HasPrefix(c.Cluster, by), "%s is of %s", id, c.Cluster)
	}
}

// rightsSite returns a site whose agent uses a service account with this name and the rules of
// `config rbac`, except for one verb on one resource.
func rightsSite(t *testing.T, cp *controlplane.ControlPlane, name, resource, verb string) *site {
	t.Helper()
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Stranger), resources: rightsResources, more: "verify: {interval: 0s}"})
	var list struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Items      []map[string]any `json:"items"`
	}
	printed := x.must("config", "rbac", "--name", name, "--namespace", "edge", "-o", "json")
	require.NoError(t, json.Unmarshal(printed, &list))
	taken := 0
	for _, item := range list.Items {
		if item["rules"] == nil {
			continue
		}
		var rules []rbacv1.PolicyRule
		recode(t, item["rules"], &rules)
		for i, r := range rules {
			if slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb) {
				rules[i].Verbs = slices.DeleteFunc(r.Verbs, func(v string) bool { return v == verb })
				if len(rules[i].Verbs) == 0 {
					rules[i].Verbs = []string{"nothing"} // a rule needs at least one
				}
				taken++
			}
		}
		item["rules"] = rules
	}
	if verb != "" {
		require.Equal(t, 1, taken, "rules that give %s on %s", verb, resource)
	}
	b, err := json.Marshal(list)
	require.NoError(t, err)
	file := filepath.Join(x.dir, "rbac.json")
	require.NoError(t, os.WriteFile(file, b, 0o600))
	harness.Kubectl(t, cp, "apply", "-f", file)
	x.kubeconfig = serviceAccountKubeconfig(t, cp, x.dir, "edge", name)

	// The authorizer notices roles with a delay, each kind by itself. A remaining verb shows that
	// it has.
	last := "watch"
	if verb == last {
		last = "list"
	}
	for _, ask := range [][]string{{last, "configmaps"}, {last, "pods"}, {last, "widgets.example.com", "-n", objects.Namespace(1)}} {
		poll(t, "the rights count", nil, func(ctx context.Context) (bool, error) {
			args := append([]string{"auth", "can-i", "-q", "--as", "system:serviceaccount:edge:" + name}, ask...)
			if ask[1] != "widgets.example.com" {
				args = append(args, "-A")
			}
			_, err := cp.Kubectl(ctx, args...)
			return err == nil, nil
		})
	}
	return x
}

func recode(t *testing.T, from, to any) {
	t.Helper()
	b, err := json.Marshal(from)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, to))
}

// serviceAccountKubeconfig writes the kubeconfig of a service account.
func serviceAccountKubeconfig(t *testing.T, cp *controlplane.ControlPlane, dir, namespace, name string) string {
	t.Helper()
	token := harness.Kubectl(t, cp, "create", "token", "-n", namespace, name)
	config, err := clientcmd.LoadFromFile(harness.Kubeconfig(t, cp, controlplane.Stranger))
	require.NoError(t, err)
	for _, user := range config.AuthInfos {
		user.Token = strings.TrimSpace(string(token))
	}
	path := filepath.Join(dir, "serviceaccount.kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}
