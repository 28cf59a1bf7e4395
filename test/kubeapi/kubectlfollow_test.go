package kubeapi

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// incomplete is a deployment during its rollout, and complete is its status at the end.
const (
	incomplete = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: rolling},
 spec: {replicas: 3, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}},
 status: {observedGeneration: 1, replicas: 3, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}}`
	complete = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: rolling},
 status: {observedGeneration: 1, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}}`
)

// followed is a command that follows changes.
type followed struct {
	name   string
	args   string
	before string // manifests
	begun  string // what the command prints before the changes, or logs with -v=6
	change func()
	last   string // what it prints at last
	ends   bool   // whether the command ends then
}

// configMap returns the manifest of a ConfigMap with one key.
func configMap(name, key string) string {
	return `{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + name + `}, data: {` + key + `: x}}`
}

// TestKubectlFollows compares commands that follow changes, while the changes are made.
func TestKubectlFollows(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t, shared.plane, "follow"), newSite(t, shared.plane)
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: slow}, spec: {containers: [{name: c, image: i}]}}`
	const ready = `{apiVersion: v1, kind: Pod, metadata: {name: slow}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`
	for _, c := range []followed{
		{
			name: "table", args: "get configmaps -w", before: configMap("table", "a"), begun: "table",
			change: func() {
				p.apply(configMap("table", "b"))
				p.apply(configMap("later", "a"))
				p.remove(configMaps, "table")
				p.apply(configMap("end", "a"))
			},
			last: "end ",
		},
		{
			name: "events", args: "get widgets -w --output-watch-events -o wide", begun: "ADDED",
			before: `{apiVersion: lab.example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 1}}`,
			change: func() {
				p.apply(`{apiVersion: lab.example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 2}}`)
				p.remove(widgets, "w")
			},
			last: "DELETED",
		},
		{
			name: "no objects at first", args: "get configmaps --watch-only -v=6", before: configMap("old", "a"), begun: "watch=true",
			change: func() { p.apply(configMap("old", "b")); p.apply(configMap("stop", "a")) }, last: "stop ",
		},
		{
			name: "field selector", args: "get pods -w --output-watch-events --field-selector status.phase!=Running", before: pod, begun: "slow",
			change: func() { p.apply(ready); p.remove(pods, "slow") }, last: "DELETED",
		},
		{
			name: "condition", args: "wait pod/slow --for=condition=Ready --timeout=60s -v=6", begun: "watch=true", before: pod,
			change: func() { p.apply(ready) }, last: "condition met", ends: true,
		},
		{
			name: "field", args: "wait cm/field --for=jsonpath={.data.done}=x --timeout=60s -v=6", begun: "watch=true", before: configMap("field", "a"),
			change: func() { p.apply(configMap("field", "done")) }, last: "condition met", ends: true,
		},
		{
			name: "creation", args: "wait cm/created --for=create --timeout=60s",
			change: func() { p.apply(configMap("created", "a")) }, last: "condition met", ends: true,
		},
		{
			name: "deletion", args: "wait cm/gone --for=delete --timeout=60s -v=6", begun: "watch=true", before: configMap("gone", "a"),
			change: func() { p.remove(configMaps, "gone") }, last: "condition met", ends: true,
		},
		{
			name: "rollout", args: "rollout status deployment/rolling --timeout=60s", before: incomplete, begun: "1 out of 3",
			change: func() { p.apply(complete) }, last: "successfully rolled out", ends: true,
		},
		{
			name: "condition over a restart", args: "wait pod/slow --for=condition=Initialized --timeout=60s -v=6", begun: "watch=true", before: pod,
			change: func() { s.restart(func() { p.apply(strings.Replace(ready, "Ready", "Initialized", 1)) }) },
			last:   "condition met", ends: true,
		},
		{
			name: "rollout over a restart", args: "rollout status deployment/rolling --timeout=60s", before: incomplete, begun: "1 out of 3",
			change: func() { s.restart(func() { p.apply(complete) }) }, last: "successfully rolled out", ends: true,
		},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) { c.compare(t, s, p) })
	}
}

// TestKubectlFollowsOffline starts commands that follow changes without the kube-apiserver. They print the
// changes that were made meanwhile once the agent has them.
func TestKubectlFollowsOffline(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t, shared.plane, "followoffline"), newSite(t, shared.plane)
	p.apply(configMap("before", "a"))
	p.apply(configMap("changed", "a"))
	require.Eventually(t, func() bool {
		return strings.Count(s.kubectl(s.cached, "get configmaps --no-headers -n "+p.namespace).stdout, "\n") == 2
	}, patience, pollEvery)
	s.link.Down()
	s.stop()
	s.start()
	followed{
		args: "get configmaps -w --output-watch-events", begun: "changed",
		change: func() {
			p.apply(configMap("changed", "b"))
			p.remove(configMaps, "before")
			p.apply(configMap("end", "a"))
			s.link.Up()
		},
		last: " end ",
	}.compare(t, s, p)
}

// restart restarts the agent and calls change in between.
func (s *site) restart(change func()) {
	s.t.Helper()
	s.stop()
	change()
	s.start()
}

// compare compares what the command prints from the kube-apiserver and from the agent; if it is get, with
// what the same command of snapcache prints too.
func (c followed) compare(t *testing.T, s *site, p *place) {
	t.Helper()
	p.t = t
	if c.before != "" {
		p.apply(c.before)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	args := c.args + " -n " + p.namespace
	running := []*kubectlRun{s.startKubectl(ctx, s.server, args), s.startKubectl(ctx, s.cached, args)}
	contains := func(wanted string) {
		t.Helper()
		for _, r := range running {
			printed := func() bool { return hasLineWith(r.stdout.String(), wanted) || hasLineWith(r.stderr.String(), wanted) }
			require.Eventually(t, printed, patience, pollEvery, "%s does not print %q, but %q and %q", r.cmd, wanted, &r.stdout, &r.stderr)
		}
	}
	contains(c.begun)
	if strings.HasPrefix(args, "get ") {
		args = strings.Replace(args, " -v=6", "", 1) + " --config " + s.dir + "/agent.yaml"
		running = append(running, s.startProgram(ctx, "", harness.Snapcache, strings.Fields(args)...))
		s.requireWatches(t, 2)
	}
	c.change()
	contains(c.last)
	if !c.ends {
		cancel()
	}
	want := running[0].wait()
	for _, r := range running[1:] {
		got := r.wait()
		require.Equal(t, want.settled().stdout, got.settled().stdout, "%s", r.cmd)
		require.Equal(t, c.ends, got.code == 0)
	}
	s.requireWatches(t, 0)
}

// requireWatches waits until clients have n watches open.
func (s *site) requireWatches(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.served().watches == n }, patience, pollEvery, "%d watches", n)
}

// hasLineWith reports whether a text has some words, in a line that is complete: kubectl prints an event in
// several writes. Any text has no words.
func hasLineWith(text, words string) bool {
	_, after, found := strings.Cut(text, words)
	return words == "" || found && strings.Contains(after, "\n")
}

// TestKubectlRefused has what an agent does not serve: the error names it.
func TestKubectlRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared.plane)
	for _, c := range []struct {
		name, args, wanted string
	}{
		{"logs", "logs web-0 -n ns -c c", "the server does not allow this method on the requested resource"},
		{"exec", "exec web-0 -n ns -c c -- true", "the server does not allow this method on the requested resource"},
		{"port-forward", "port-forward web-0 20000:80 -n ns", "the server does not allow this method on the requested resource"},
		{"top", "top pods -n ns", "Metrics API not available"},
		{"rollout restart", "rollout restart deployment web -n ns", "the server does not allow this method on the requested resource"},
		{"delete", "delete pod web-0 -n ns --wait=false", "the server does not allow this method on the requested resource"},
		{"patch", "label pod web-0 -n ns x=y", "the server does not allow this method on the requested resource"},
		{"scale", "scale deployment web -n ns --replicas=2", "the server does not allow this method on the requested resource"},
		{"create", "create configmap x -n ns", "the server does not allow this method on the requested resource"},
		{"not cached", "get daemonsets -n ns", `the server doesn't have a resource type "daemonsets"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := s.kubectl(s.cached, c.args)
			require.NotZero(t, got.code)
			require.Contains(t, got.stderr, c.wanted)
		})
	}
}
