package kubeapi

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts the requests of a [Server]. It is a [prometheus.Collector], and safe for concurrent
// use. Its labels are bounded: verbs, collections, status codes, and some names of programs.
type Metrics struct {
	prometheus.Collector

	requests *prometheus.CounterVec
	watches  *prometheus.GaugeVec
	events   *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	resumes  *prometheus.CounterVec
	refused  *prometheus.CounterVec

	forwarded  *prometheus.CounterVec
	forwarding prometheus.Gauge
	repeated   prometheus.Counter

	programs *programs
}

// Refusal is why a client is refused.
type Refusal string

// The refusals.
const (
	RefusedUnauthorized Refusal = "unauthorized" // its credentials are not accepted
	RefusedForbidden    Refusal = "forbidden"    // it has no right to the request
	RefusedTokens       Refusal = "tokens"       // too many unknown tokens
	RefusedRate         Refusal = "rate"         // too many requests in a short time
	RefusedRequests     Refusal = "requests"     // too many requests in progress
	RefusedBytes        Refusal = "bytes"        // requests in progress that are too large together
	RefusedConnections  Refusal = "connections"  // too many connections
	RefusedWatches      Refusal = "watches"      // too many watches of all clients
	RefusedLists        Refusal = "lists"        // too many lists are being sent
)

// Refusals are all of them.
var Refusals = []Refusal{RefusedUnauthorized, RefusedForbidden, RefusedTokens, RefusedRate, RefusedRequests, RefusedBytes, RefusedConnections, RefusedWatches, RefusedLists}

// NewMetrics returns the metrics of one server.
func NewMetrics() *Metrics {
	const prefix = "snapcache_kubernetes_api_"
	registry := prometheus.NewRegistry()
	made := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return made.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	programs := newPrograms(prefix)
	registry.MustRegister(programs)
	return &Metrics{
		Collector: registry, programs: programs,
		requests: counter("requests_total",
			"Requests to the Kubernetes API that have ended, by verb, collection and status code.", "verb", "collection", "code"),
		watches: made.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "watches", Help: "Watches of the Kubernetes API that are open.",
		}, []string{"collection"}),
		events: counter("events_total", "Events sent to watches of the Kubernetes API, without bookmarks.", "collection"),
		bytes: counter("sent_bytes_total",
			"Bytes of the answers of the Kubernetes API as sent, which may be compressed, by verb.", "verb"),
		resumes: counter("resumes_total",
			"Watches that continued from a resourceVersion, by tier: exact from memory, coalesced from the stored history, expired (410).",
			"collection", "tier"),
		refused: counter("refused_total",
			"What clients of the Kubernetes API were refused, by reason: unauthorized (401), forbidden (403); tokens, rate, requests, bytes (429), for one "+
				"client that has too many of them; watches, lists (429), for too many in all; connections, which are closed.", "reason"),
		forwarded: counter("forwarded_total",
			"Requests forwarded to the server, or refused because they can't be, that have ended, by verb and status code.", "verb", "code"),
		forwarding: made.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "forwarding",
			Help: "Requests that are being forwarded to the server, with streams such as those of exec and log.",
		}),
		repeated: made.NewCounter(prometheus.CounterOpts{
			Name: prefix + "repeated_tokens_total",
			Help: "Service account tokens that the server has issued before, and that were repeated while it could not be reached.",
		}),
	}
}

// Refused counts a refused request.
func (m *Metrics) Refused(why Refusal) { m.refused.WithLabelValues(string(why)).Inc() }

// Repeated counts a service account token that was issued before and is repeated.
func (m *Metrics) Repeated() { m.repeated.Inc() }

// Programs returns the requests of each client program, those with the most requests first.
func (m *Metrics) Programs() []ProgramCounts { return m.programs.all() }

// begin counts a request that has begun. The returned function counts its end.
func (m *Metrics) begin(v verb, collection string) func(code int) {
	if v == verbWatch {
		m.watches.WithLabelValues(collection).Inc()
	}
	return func(code int) {
		if v == verbWatch {
			m.watches.WithLabelValues(collection).Dec()
		}
		m.requests.WithLabelValues(string(v), collection, strconv.Itoa(code)).Inc()
	}
}

// sent returns the counter of the events that are sent to watches of a collection.
func (m *Metrics) sent(collection string) prometheus.Counter {
	return m.events.WithLabelValues(collection)
}

// resumed counts the tier from which a watch continues.
func (m *Metrics) resumed(collection string, exact, bookmarks bool) {
	tier := "exact"
	switch {
	case !exact && bookmarks:
		tier = "coalesced"
	case !exact:
		tier = "expired"
	}
	m.resumes.WithLabelValues(collection, tier).Inc()
}
