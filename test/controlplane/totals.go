package controlplane

import (
	"bytes"
	"context"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

// Totals are the numbers of requests that the apiserver has answered since it started, from its
// metrics.
//
// A watch is counted when it ends; [Totals.Open] has the watches that are under way.
// The apiserver counts its own requests too, so take totals before and after
// and compare with [Totals.Since].
type Totals struct {
	answered map[request]int
	open     map[request]int
}

type request struct{ verb, group, resource, subresource, code string }

// RequestTotals reads the apiserver's metrics. They start from zero with every
// start of the apiserver.
func (cp *ControlPlane) RequestTotals(ctx context.Context) (Totals, error) {
	client, err := kubernetes.NewForConfig(cp.RESTConfig(Admin))
	if err != nil {
		return Totals{}, fmt.Errorf("request totals: %w", err)
	}
	raw, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return Totals{}, fmt.Errorf("request totals: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
	if err != nil {
		return Totals{}, fmt.Errorf("request totals: %w", err)
	}
	return Totals{
		answered: collect(families["apiserver_request_total"]),
		open:     collect(families["apiserver_longrunning_requests"]),
	}, nil
}

func collect(family *dto.MetricFamily) map[request]int {
	m := make(map[request]int)
	for _, metric := range family.GetMetric() {
		var r request
		for _, l := range metric.GetLabel() {
			switch l.GetName() {
			case "verb":
				r.verb = l.GetValue()
			case "group":
				r.group = l.GetValue()
			case "resource":
				r.resource = l.GetValue()
			case "subresource":
				r.subresource = l.GetValue()
			case "code":
				r.code = l.GetValue()
			}
		}
		m[r] += int(metric.GetCounter().GetValue() + metric.GetGauge().GetValue())
	}
	return m
}

// Count returns the number of answered requests of a verb ("LIST", "WATCH",
// "GET", "POST", "PUT", "PATCH", "DELETE") for a resource ("pods"). Empty means
// any.
func (t Totals) Count(verb, resource string) int { return sum(t.answered, verb, resource, "") }

// CountCode is Count for the answers with one HTTP status ("200", "410").
func (t Totals) CountCode(verb, resource, code string) int {
	return sum(t.answered, verb, resource, code)
}

// Open returns the number of watches of a resource that are under way.
func (t Totals) Open(resource string) int { return sum(t.open, "WATCH", resource, "") }

// Since returns the requests that were answered after earlier; both must be of one run of the
// apiserver. Open watches are not subtracted: they stay as they are in t.
func (t Totals) Since(earlier Totals) Totals {
	d := Totals{answered: make(map[request]int, len(t.answered)), open: t.open}
	for r, n := range t.answered {
		d.answered[r] = n - earlier.answered[r]
	}
	return d
}

func sum(m map[request]int, verb, resource, code string) int {
	n := 0
	for r, c := range m {
		if (verb == "" || r.verb == verb) && (resource == "" || r.resource == resource) && (code == "" || r.code == code) {
			n += c
		}
	}
	return n
}
