package selector

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

func newPodPool() *Pool {
	return NewPool(FieldsOf(store.Info{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}, store.Description{}))
}

// TestPoolShares: equal selectors of requests that last are held once, and not longer than these.
func TestPoolShares(t *testing.T) {
	p := newPodPool()
	const text = "app in (web,shop)"
	a, err := p.Parse(text, "spec.nodeName=edge-1")
	require.NoError(t, err)
	b, err := p.Parse(strings.Clone(text), "spec.nodeName=edge-1")
	require.NoError(t, err)
	require.NotNil(t, a.shared)
	require.Same(t, a.shared, b.shared)
	c, err := p.Parse(text, "spec.nodeName=edge-2")
	require.NoError(t, err)
	require.NotSame(t, a.shared, c.shared)
	require.True(t, a.Matches("ns/x", Attributes{Labels: map[string]string{"app": "web"}, Fields: map[string]string{"spec.nodeName": "edge-1"}}))
	require.Len(t, p.held, 2)
	runtime.KeepAlive(c)
	runtime.GC()
	require.NotNil(t, p.find(idOf(text, "spec.nodeName=edge-1")), "a request holds it")
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	require.Eventually(t, func() bool {
		runtime.GC()
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.held) == 0
	}, time.Minute, time.Millisecond, "no request holds one any more")
}

// TestPoolLimits: a selector that would take much memory is refused, before or after it is parsed.
func TestPoolLimits(t *testing.T) {
	p := newPodPool()
	values := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint("v", i)
		}
		return "app in (" + strings.Join(all, ",") + ")"
	}
	for _, tc := range []struct{ name, labels, fields, err string }{
		{"none", "", "", ""},
		{"usual", "app=web,tier in (a,b),!canary", "spec.nodeName=edge-1", ""},
		{"many values", values(MaxTerms - 1), "", ""},
		{"too many values", values(MaxTerms), "", "labelSelector and fieldSelector with 1001 requirements and values: at most 1000 are allowed here"},
		{"too many requirements", strings.Repeat("a,", 4000) + "a", "", "labelSelector and fieldSelector with 4001 requirements and values: at most 1000 are allowed here"},
		{"too many fields", "", strings.Repeat("metadata.name!=a,", 600) + "metadata.name!=b", "labelSelector and fieldSelector with 1202 requirements and values: at most 1000 are allowed here"},
		{"too long", "a=" + strings.Repeat("x", MaxBytes), "", "labelSelector of 16386 bytes: at most 16384 are allowed here"},
		{"too long fields", "", "metadata.name=" + strings.Repeat("x", MaxBytes), "fieldSelector of 16398 bytes: at most 16384 are allowed here"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := p.Parse(tc.labels, tc.fields)
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.LessOrEqual(t, s.Bytes(), 64*MaxTerms)
		})
	}
}
