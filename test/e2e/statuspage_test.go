package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/localapi/statuspage"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

var (
	phone   = screen{name: "phone", width: 390, height: 844}
	desktop = screen{name: "desktop", width: 1280, height: 900}
)

// TestStatusPage loads a real agent's page in a real browser: it shows the server's objects, and
// changes with them without a reload.
func TestStatusPage(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	cp := harness.ControlPlane(t, controlplane.Options{})
	kubectl := func(args ...string) {
		harness.Kubectl(t, cp, args...)
	}
	kubectl("create", "namespace", "shop")
	kubectl("create", "configmap", "till", "-n", "shop")
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: configmaps\n  namespaces: [shop]\n- resource: namespaces\n- resource: secrets", consent: true})
	a := x.start()
	found := a.awaitCaughtUp(anywhere("configmaps@shop", "namespaces", "secrets"))

	const objects, state, events = `[id="c-configmaps@shop"] .objects b`, `[id="c-configmaps@shop"] .state`, `[id="c-configmaps@shop"] svg`
	page := "http://" + a.metrics + "/"
	b.open(page, phone)
	require.Equal(t, strconv.FormatInt(found["configmaps@shop"].Objects, 10), b.text(objects))
	require.Equal(t, localapi.CaughtUp, b.text(state))
	require.Equal(t, localapi.CaughtUp, b.text("h1"))
	require.Equal(t, "No alarms.", b.text("#alarms"))
	b.awaitText("#live", "live", func(s string) bool { return s == "Live." })

	// A reload would lose this variable.
	evaluate[bool](b, `window.loadedOnce = true`)
	kubectl("create", "configmap", "scale", "-n", "shop")
	b.awaitText(objects, "one more", func(s string) bool { return s == strconv.FormatInt(found["configmaps@shop"].Objects+1, 10) })
	require.Equal(t, "1 event in the last hour, most in a minute: 1", b.attribute(events, "aria-label"))
	require.NotEmpty(t, b.attribute(events+" path", "d"))
	kubectl("delete", "configmap", "scale", "till", "-n", "shop")
	b.awaitText(objects, "two less", func(s string) bool { return s == strconv.FormatInt(found["configmaps@shop"].Objects-1, 10) })
	require.True(t, evaluate[bool](b, `window.loadedOnce === true`), "the page was loaded again")
	asked, messages := b.activity()
	for _, url := range asked {
		if url != "data:," {
			require.True(t, strings.HasPrefix(url, page), url)
		}
	}
	require.Empty(t, messages, "the browser complained")

	// The server goes down, and the page reports it without the details, which are not public.
	require.NoError(t, cp.KillAPIServer(t.Context()))
	b.awaitText(state, "not caught up", func(s string) bool { return s == "waiting" || s == "resuming" })
	b.awaitText("#alarms", "an alarm", func(s string) bool { return strings.Contains(s, "unreachable; snapcache status shows why") })
	require.NotContains(t, b.text("body"), strings.TrimPrefix(cp.URL(), "https://"))

	// The same page through a tunnel to the socket, as with ssh -L, has the details.
	tunnel := tunnelTo(t, a.socket)
	b.open(tunnel, desktop)
	require.Contains(t, b.text("#facts"), cp.URL())
	b.awaitText("#alarms", "in words", func(s string) bool { return strings.Contains(s, "can't reach the server") })

	// Without scripts it is as complete.
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open(page, phone)
	require.Equal(t, strconv.FormatInt(found["configmaps@shop"].Objects-1, 10), b.text(objects))
	require.Contains(t, b.text("#alarms"), "configmaps@shop")
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{})

	b.open(page, phone)
	b.awaitText("#live", "live", func(s string) bool { return s == "Live." })
	a.stop()
	b.awaitText("#live", "not live", func(s string) bool { return strings.HasPrefix(s, "Not live") })
	require.NotEmpty(t, b.text(objects), "the last state is no longer shown")
}

// TestStatusPageGuarded sends the requests that a foreign site could make a browser send.
func TestStatusPageGuarded(t *testing.T) {
	t.Parallel()
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, quietControlPlane(t), controlplane.Reader), resources: "- resource: nodes"})
	a := x.start()
	a.awaitCaughtUp(anywhere("nodes"))
	tunnel := tunnelTo(t, a.socket)
	ask := func(method, url, host, origin string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		require.NoError(t, err)
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		return resp.StatusCode
	}
	for _, path := range []string{"", "v1alpha1/status", "v1alpha1/collections/nodes/objects", "browse/", "browse/nodes", "browse/nodes/changes"} {
		require.Equal(t, http.StatusOK, ask(http.MethodGet, tunnel+path, "localhost", ""), path)
		require.Equal(t, http.StatusForbidden, ask(http.MethodGet, tunnel+path, "evil.example", ""), path)
	}
	require.Equal(t, http.StatusForbidden, ask(http.MethodPost, tunnel+"v1alpha1/snapshots", "localhost", "https://evil.example"))
	require.Equal(t, http.StatusOK, ask(http.MethodPost, tunnel+"v1alpha1/snapshots", "localhost", ""))
	loopback := "http://" + a.metrics + "/"
	require.Equal(t, http.StatusOK, ask(http.MethodGet, loopback, "localhost", ""))
	require.Equal(t, http.StatusForbidden, ask(http.MethodGet, loopback, "evil.example", ""))
	require.Equal(t, http.StatusNotFound, ask(http.MethodGet, loopback+"v1alpha1/status", "localhost", ""), "the API is on the socket alone")
	require.Equal(t, http.StatusNotFound, ask(http.MethodGet, loopback+"browse/", "localhost", ""), "the pages of the objects are not served there")
	a.stop()
}

// tunnelTo returns the URL of a loopback port that forwards to a unix socket.
func tunnelTo(t *testing.T, socket string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", socket)
			if err != nil {
				from.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, from); to.Close() }()
			go func() { _, _ = io.Copy(from, to); from.Close() }()
		}
	}()
	return "http://" + l.Addr().String() + "/"
}

// TestStatusPageLayout checks pages with much content: nothing is wider than the screen, and all
// text contrasts with its background.
func TestStatusPageLayout(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	for _, tc := range []struct {
		name   string
		status *localapi.Status
	}{{"good", goodStatus()}, {"bad", badStatus()}} {
		server := httptest.NewServer(statuspage.Handler(statuspage.Options{Source: fixed{status: tc.status}, Node: "edge-store-0042", Done: t.Context().Done()}))
		t.Cleanup(server.Close)
		for _, s := range []screen{phone, desktop} {
			for _, s.dark = range []bool{false, true} {
				b.open(server.URL+"/", s)
				b.awaitText("#live", "live", func(s string) bool { return s == "Live." })
				require.LessOrEqual(t, evaluate[int64](b, `document.documentElement.scrollWidth`), s.width, "%s is wider than %s", tc.name, s.name)
				require.Empty(t, evaluate[[]string](b, faintTexts), "%s on %s, dark: %t", tc.name, s.name, s.dark)
				b.picture(fmt.Sprintf("%s-%s-dark=%t", tc.name, s.name, s.dark))
			}
		}
	}
	_, messages := b.activity()
	require.Empty(t, messages, "the browser complained")
}

// faintTexts finds texts with a contrast below the minimum of WCAG 2 (4.5).
const faintTexts = `(() => {
  const rgb = (c) => c.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("main *, footer")].filter((e) =>
    [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim())).flatMap((e) => {
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    return contrast < 4.5 ? [e.textContent.trim() + ": " + contrast.toFixed(2)] : [];
  });
})()`

// fixed is a Source with a constant status.
type fixed struct {
	localapi.Source
	status *localapi.Status
}

func (s fixed) Status(context.Context) (*localapi.Status, error) { return s.status, nil }

// hour returns an hour of events by the minute.
func hour(busy int64) []int64 {
	counts := make([]int64, 60)
	for i := range counts {
		counts[i] = (int64(i)*7919%13 + 2) * busy / 10
		if i%11 == 3 {
			counts[i] *= 3
		}
	}
	return counts
}

func goodStatus() *localapi.Status {
	now := time.Now()
	one := func(id string, objects, events int64) localapi.Collection {
		return localapi.Collection{
			ID: id, Synced: true, CaughtUp: true, Phase: "watching", Objects: objects, Bytes: objects * 10400,
			Checkpoint: localapi.Checkpoint{ResourceVersion: "48211733"},
			Updates: localapi.Updates{
				Lists: 1, Relists: map[string]int64{"initial": 1}, ListReason: "initial", LastList: now.Add(-61 * time.Hour),
				Events: events * 900, Resumes: 17, EventsByMinute: hour(events),
			},
			Verification: &localapi.Verification{Time: now.Add(-50 * time.Hour), Objects: objects},
		}
	}
	pods := one("pods", 20100, 40)
	pods.FieldSelector = "spec.nodeName=edge-store-0042"
	return &localapi.Status{
		Agent:     &localapi.AgentStatus{Version: "v0.9.0", Started: now.Add(-61 * time.Hour), Server: "https://control.example.com:6443", Connected: true},
		Store:     localapi.StoreStatus{Type: "bolt", Path: "/var/lib/snapcache/cache.db", FileBytes: 61 << 20, Verdict: "opened"},
		Snapshots: &localapi.SnapshotStatus{Dir: "/var/lib/snapcache/snapshots", Newest: now.Add(-7 * time.Hour), Bytes: 24 << 20, Made: 2},
		Collections: []localapi.Collection{
			one("configmaps", 812, 3), one("endpointslices.discovery.k8s.io", 402, 12), one("namespaces", 12, 0), pods, one("services", 377, 1),
		},
	}
}

func badStatus() *localapi.Status {
	s := goodStatus()
	now := time.Now()
	s.Agent.Connected = false
	s.Store.Problem = "write /var/lib/snapcache/cache.db: no space left on device"
	s.Store.Quarantined = "corrupt"
	s.Snapshots.Problem, s.Snapshots.Failed = "12 MiB are free, 40 MiB are needed", 3
	c := s.Collections
	for i := range c {
		c[i].CaughtUp, c[i].Phase, c[i].AgeSeconds = false, "waiting", 11523
		c[i].Problem, c[i].ProblemKind = "can't reach the server: connection refused by control.example.com:6443: check that the kube-apiserver runs there", "unreachable"
	}
	c[0].Untrusted = "rv-ahead"
	c[1].CorruptRecords, c[1].Phase, c[1].ListRead, c[1].ListRemaining, c[1].AgeSeconds = 3, "listing", 200, 202, 40
	c[2].Synced, c[2].Objects, c[2].Lists, c[2].Relists, c[2].LastList = false, 0, 0, nil, time.Time{}
	c[3].Lists, c[3].Relists, c[3].ListReason, c[3].LastList = 14, map[string]int64{"initial": 1, "expired": 9, "silent-close": 3, "schema-changed": 1}, "expired", now.Add(-4*time.Minute)
	c[3].Verification = &localapi.Verification{Time: now.Add(-time.Hour), Missing: 1, Stale: 4}
	return s
}
