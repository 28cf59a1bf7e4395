package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// shownWithin is the longest time from the server's answer to a write until a follower has the
// change.
const shownWithin = 5 * time.Second

// TestChanges compares the output of changes with what was done: while the agent runs, while it is
// stopped, and after the server has also compacted its checkpoint; from the agent and from its
// file; since the beginning and since each stop. A changed scope starts the history over.
func TestChanges(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 60, Namespaces: 3}))
	s := settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: configmaps"}
	x := newSite(t, s)
	d := newChanger(t, cp)
	a := x.start()
	a.requireServers(cp, "configmaps")
	since := []resumePoint{x.resumePoint(cp)}

	f := x.follow(since[0].rv)
	d.round("one")
	last := d.create("marker-one")
	done := time.Now()
	f.awaits("ADDED " + last)
	took := time.Since(done)
	t.Logf("a follower saw it %s after the server's answer", took.Round(time.Millisecond))
	require.Less(t, took, shownWithin)
	f.interrupt()
	a.requireServers(cp, "configmaps")
	since = x.requireChanges(cp, since)
	f = x.follow(since[1].rv)
	f.awaits("BOOKMARK")
	a.stop()
	code, stderr := f.wait()
	require.Equal(t, codeFailure, code, stderr)
	requireOneLine(t, stderr, "the agent is stopping")
	x.requireChanges(cp, since)

	d.round("two")
	d.create("marker-two")
	a = x.start()
	a.requireServers(cp, "configmaps")
	require.Zero(t, a.relists("configmaps").total(), "lists of a resume")
	since = x.requireChanges(cp, since)
	a.stop()
	x.requireChanges(cp, since)

	d.round("three")
	d.create("marker-three")
	forget(t, cp)
	a = x.start()
	a.awaitListed("expired", "configmaps")
	a.requireServers(cp, "configmaps")
	x.requireChanges(cp, since)

	for _, from := range []string{"agent", "file"} {
		if from == "file" {
			a.stop()
			x.requireChanges(cp, since)
		}
		r := x.run("changes", "configmaps", "--since", "1", "--config", x.config)
		require.Equal(t, 5, r.Code, "%s: %s", from, r.Stderr)
		requireOneLine(t, r.Stderr, "too old: the history begins after RV "+since[0].listed, "list again")
		require.Empty(t, r.Stdout)

		all := x.run("changes", "configmaps", "--since", since[0].listed, "--config", x.config)
		require.Zero(t, all.Code, all.Stderr)
		r = x.run("changes", "configmaps", "--since", "700h", "--config", x.config)
		require.Zero(t, r.Code, "%s: %s", from, r.Stderr)
		require.Regexp(t, `(?m)^snapcache: configmaps: the history begins at \S+Z, with the first list$`, r.Stderr)
		require.NotEmpty(t, r.Stdout)
		require.Equal(t, string(all.Stdout), string(r.Stdout), from)

		r = x.run("changes", "configmaps", "--since", "999999999", "--config", x.config)
		require.Equal(t, codeFailure, r.Code, r.Stderr)
		requireOneLine(t, r.Stderr, "is ahead of the cache")
	}
	r := x.run("changes", "configmaps", "--since", since[0].rv, "--follow", "--config", x.config)
	require.Equal(t, codeFailure, r.Code, r.Stderr)
	requireOneLine(t, r.Stderr, "following needs the running agent")

	s.resources += "\n  labelSelector: example.com/none=none"
	x.configure(s)
	a = x.start()
	a.awaitListed("scope-changed", "configmaps")
	r = x.run("changes", "configmaps", "--since", since[0].rv, "--follow", "--config", x.config)
	require.Equal(t, 5, r.Code, r.Stderr)
	requireOneLine(t, r.Stderr, "too old: the history begins after RV ", "list again")
	a.stop()
}

// changer changes configmaps.
type changer struct {
	t      *testing.T
	client dynamic.ResourceInterface
	left   []string // names of the unchanged ones
}

// changesNamespace is the namespace of all doers.
var changesNamespace = objects.Namespace(0)

func newChanger(t *testing.T, cp *controlplane.ControlPlane) *changer {
	t.Helper()
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	d := &changer{t: t, client: client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(changesNamespace)}
	for key := range onServer(t, cp, "configmaps") {
		if ns, name, _ := strings.Cut(key, "/"); ns == changesNamespace {
			d.left = append(d.left, name)
		}
	}
	slices.Sort(d.left)
	return d
}

func (d *changer) create(name string) (key string) {
	d.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"from": "<" + name + ">"}}}
	o.SetName(name)
	_, err := d.client.Create(d.t.Context(), o, metav1.CreateOptions{})
	require.NoError(d.t, err)
	return object.Key(changesNamespace, name)
}

func (d *changer) modify(name, how string) {
	d.t.Helper()
	patch := fmt.Appendf(nil, `{"data":{"modified":%q}}`, how)
	_, err := d.client.Patch(d.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(d.t, err)
}

func (d *changer) delete(name string) {
	d.t.Helper()
	require.NoError(d.t, d.client.Delete(d.t.Context(), name, metav1.DeleteOptions{}))
}

// next returns an unchanged configmap.
func (d *changer) next() string {
	d.t.Helper()
	require.NotEmpty(d.t, d.left)
	name := d.left[0]
	d.left = d.left[1:]
	return name
}

// round makes one change of each kind.
func (d *changer) round(name string) {
	d.t.Helper()
	twice := d.next()
	d.modify(twice, "once")
	d.modify(twice, "twice")
	d.create("created-" + name)
	d.create("created-modified-" + name)
	d.modify("created-modified-"+name, "once")
	d.delete(d.next())
	modified := d.next()
	d.modify(modified, "before it went")
	d.delete(modified)
	d.create("came-and-went-" + name)
	d.delete("came-and-went-" + name)
	again := d.next()
	d.delete(again)
	d.create(again)
	d.create("recreated-" + name)
	d.delete("recreated-" + name)
	d.create("recreated-" + name)
}

// resumePoint is the state at a resourceVersion from which a client resumes.
type resumePoint struct {
	rv      string
	listed  string // the horizon
	content content
}

// resumePoint returns the present one; agent and server must be caught up.
func (x *site) resumePoint(cp *controlplane.ControlPlane) resumePoint {
	x.t.Helper()
	var s localapi.Status
	require.NoError(x.t, json.Unmarshal(x.must("inspect", "-o", "json"), &s))
	c := collections(&s)["configmaps"]
	require.NotEmpty(x.t, c.HistorySince.RV)
	require.False(x.t, c.HistorySince.Time.IsZero())
	return resumePoint{rv: c.ResourceVersion, listed: c.HistorySince.RV, content: onServer(x.t, cp, "configmaps")}
}

// requireChanges compares the changes since each point, in all namespaces and in one, and returns
// the moments with the present one appended.
func (x *site) requireChanges(cp *controlplane.ControlPlane, since []resumePoint) []resumePoint {
	x.t.Helper()
	now := x.resumePoint(cp)
	for i, m := range since {
		require.Equal(x.t, m.listed, now.listed, "the history goes on")
		all := x.changes("--since", m.rv)
		require.ElementsMatch(x.t, difference(m.content, now.content), all.lines, "since point %d", i)
		require.False(x.t, compareRV(x.t)(all.bookmark, now.rv) < 0, "a bookmark at %s, before %s", all.bookmark, now.rv)
		for key, o := range all.objects {
			require.Equal(x.t, now.content[key], o, key)
		}
		require.Empty(x.t, x.changes("--since", m.rv, "-n", "kube-public").lines)
		require.ElementsMatch(x.t, all.in(changesNamespace), x.changes("--since", m.rv, "-n", changesNamespace).lines)
	}
	require.Empty(x.t, x.changes("--since", now.rv).lines)
	return append(since, now)
}

// difference returns the watch events that lead from one content to the other.
func difference(before, after content) (lines []string) {
	version := func(o map[string]any) (uid, rv string) {
		u := unstructured.Unstructured{Object: o}
		return string(u.GetUID()), u.GetResourceVersion()
	}
	for key, o := range before {
		was, _ := version(o)
		if is, _ := version(after[key]); was != is {
			lines = append(lines, "DELETED "+key)
		}
	}
	for key, o := range after {
		is, now := version(o)
		was, then := version(before[key])
		if was != is {
			lines = append(lines, "ADDED "+key)
		} else if then != now {
			lines = append(lines, "MODIFIED "+key)
		}
	}
	return lines
}

// changesOutput is an answer of changes.
type changesOutput struct {
	lines    []string
	objects  content // the objects that exist
	bookmark string
}

func (c changesOutput) in(namespace string) (lines []string) {
	for _, l := range c.lines {
		if strings.Contains(l, " "+namespace+"/") {
			lines = append(lines, l)
		}
	}
	return lines
}

// changeLine is a line of changes -o json.
type changeLine struct {
	Type, ResourceVersion, Namespace, Name string
	Time                                   time.Time
	Object                                 json.RawMessage
}

func (c changeLine) String() string {
	return strings.TrimSpace(c.Type + " " + object.Key(c.Namespace, c.Name))
}

// changes runs the command against the agent, or against the file if no agent runs.
func (x *site) changes(args ...string) changesOutput {
	x.t.Helper()
	answer := changesOutput{objects: content{}}
	newest := "0"
	for d := json.NewDecoder(bytes.NewReader(x.must(append([]string{"changes", "configmaps", "-o", "json"}, args...)...))); d.More(); {
		var c changeLine
		require.NoError(x.t, d.Decode(&c))
		require.Empty(x.t, answer.bookmark, "the bookmark comes last")
		if c.Type == "BOOKMARK" {
			answer.bookmark = c.ResourceVersion
			continue
		}
		require.Positive(x.t, compareRV(x.t)(c.ResourceVersion, newest), "order of resourceVersions")
		newest = c.ResourceVersion
		require.WithinDuration(x.t, time.Now(), c.Time, 10*time.Minute)
		answer.lines = append(answer.lines, c.String())
		o := decodeObject(x.t, c.Object)
		u := unstructured.Unstructured{Object: o}
		require.Equal(x.t, object.Key(c.Namespace, c.Name), object.Key(u.GetNamespace(), u.GetName()))
		if c.Type != "DELETED" {
			require.Equal(x.t, c.ResourceVersion, u.GetResourceVersion())
			answer.objects.add(x.t, o)
		}
	}
	require.NotEmpty(x.t, answer.bookmark)
	return answer
}

// following is a running `snapcache changes --follow`.
type following struct {
	*site
	lines chan string // closed at the end
	end   func() (code int, stderr string)
	kill  func(syscall.Signal) error
}

// follow starts a follower, which ends with the test at the latest.
func (x *site) follow(since string) *following {
	x.t.Helper()
	cmd := x.command(x.t.Context(), "changes", "configmaps", "--since", since, "--follow", "-o", "json", "--config", x.config)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, in := io.Pipe()
	cmd.Stdout = in
	require.NoError(x.t, cmd.Start())
	f := &following{site: x, lines: make(chan string, 10_000), kill: func(s syscall.Signal) error { return cmd.Process.Signal(s) }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // ProcessState has the result
		_ = in.Close()
	}()
	go func() {
		defer close(f.lines)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 16<<20)
		for s.Scan() {
			var c changeLine
			if json.Unmarshal(s.Bytes(), &c) != nil {
				c.Type = "not JSON: " + s.Text()
			}
			f.lines <- c.String()
		}
	}()
	f.end = func() (int, string) {
		<-done
		return cmd.ProcessState.ExitCode(), stderr.String()
	}
	return f
}

// awaits waits for a line, and returns those before it.
func (f *following) awaits(line string) (before []string) {
	f.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case got, ok := <-f.lines:
			switch {
			case !ok:
				code, stderr := f.end()
				f.t.Fatalf("it ended with %d before %s: %s", code, line, stderr)
			case got == line:
				return before
			}
			before = append(before, got)
		case <-timeout:
			f.t.Fatalf("timed out waiting for %s; there was %v", line, before)
		}
	}
}

// interrupt sends SIGINT, as Ctrl-C does.
func (f *following) interrupt() {
	f.t.Helper()
	require.NoError(f.t, f.kill(syscall.SIGINT))
	code, stderr := f.wait()
	require.Equal(f.t, 0, code, stderr)
	require.Empty(f.t, stderr)
}

// wait returns the result of the follower.
func (f *following) wait() (code int, stderr string) {
	f.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case _, ok := <-f.lines:
			if !ok {
				return f.end()
			}
		case <-timeout:
			f.t.Fatalf("it still runs after %s", patience)
		}
	}
}
