package kubeapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// TestPrograms: what each client program asks is counted once, by who answers it; refused requests are not.
func TestPrograms(t *testing.T) {
	f := &forwarder{takes: true, reaches: true}
	s, _ := partly(t, f, true)
	ask := func(agent, method, path string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
		r.Header.Set("User-Agent", agent)
		s.WithBodies(s).ServeHTTP(httptest.NewRecorder(), r)
	}
	ask("kubectl/v1.36.0 (linux/amd64)", "GET", "/api/v1/namespaces/a/configmaps?resourceVersion=0")
	ask("kubectl/v1.37.0 (linux/arm64)", "GET", "/api/v1/nodes/edge-1?resourceVersion=0")
	ask("kubectl/v1.36.0", "GET", "/api/v1/namespaces/a/services")
	ask("kubectl/v1.36.0", "POST", "/api/v1/namespaces/a/pods")
	ask("coredns", "GET", "/api/v1/namespaces/a/configmaps/c?resourceVersion=0")
	ask("kubectl/v1.36.0", "GET", "/healthz")
	ask("<script>", "GET", "/api/v1/namespaces/a/configmaps?resourceVersion=0")
	ask("", "GET", "/api/v1/namespaces/a/configmaps?resourceVersion=0")

	watch := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/nodes?watch=1", http.NoBody)
	watch.Header.Set("User-Agent", "coredns/1.14")
	end := s.opts.Metrics.programs.begin(newRequest(watch))
	programs := func() map[string]ProgramCounts {
		all := map[string]ProgramCounts{}
		for _, p := range s.opts.Metrics.Programs() {
			all[p.Name] = p
		}
		return all
	}
	require.Equal(t, map[string]ProgramCounts{
		"kubectl": {Name: "kubectl", Requests: 2, Forwarded: 2},
		"coredns": {Name: "coredns", Requests: 1, Watches: 1, Open: 1},
		"others":  {Name: "others", Requests: 2},
	}, programs())
	end()
	require.Zero(t, programs()["coredns"].Open)
	require.Equal(t, map[string]float64{
		"program_requests_total cache coredns": 2, "program_requests_total cache kubectl": 2, "program_requests_total cache others": 2,
		"program_requests_total server coredns": 0, "program_requests_total server kubectl": 2, "program_requests_total server others": 0,
		"program_watches coredns": 0, "program_watches kubectl": 0, "program_watches others": 0,
	}, programMetrics(t, s))

	for i := range 2 * maxPrograms {
		ask(fmt.Sprint("program-", i, "/v1"), "GET", "/api/v1/nodes?resourceVersion=0")
	}
	require.Len(t, programs(), maxPrograms)
	require.EqualValues(t, 2+2*maxPrograms-(maxPrograms-3), programs()["others"].Requests)

	strict, _ := partly(t, f, false)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/nodes", http.NoBody)
	strict.ServeHTTP(httptest.NewRecorder(), r)
	require.Empty(t, strict.opts.Metrics.Programs())
}

// programMetrics returns the metrics of programs, by name and labels.
func programMetrics(t *testing.T, s *Server) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.opts.Metrics)
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "snapcache_kubernetes_api_program_")
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += " " + l.GetValue()
			}
			if ok {
				values["program_"+name+labels] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return values
}
