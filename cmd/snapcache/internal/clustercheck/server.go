package clustercheck

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// smallTimeout limits a request with a small answer.
	smallTimeout = 15 * time.Second

	// metricsTimeout and maxMetrics limit the reading of the server's metrics, which are some megabytes.
	metricsTimeout = 30 * time.Second
	maxMetrics     = 32 << 20

	// samples is the number of small requests, sampleEvery their distance: together they take a second,
	// so that one answer is near the moment at which the second of its Date changes.
	samples     = 10
	sampleEvery = 110 * time.Millisecond
)

// server sends requests whose headers matter, which package upstream does not return.
type server struct {
	client *http.Client
	base   *url.URL
}

func newServer(cfg *rest.Config) (*server, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	return &server{client, base}, err
}

// get sends a request. The caller closes the body.
func (s *server) get(ctx context.Context, path string, query url.Values, accept string) (*http.Response, error) {
	u := s.base.JoinPath(path)
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	return s.client.Do(r)
}

// sample measures latency and clock, by the Date of small answers. Each Date bounds the difference of the clocks: the
// server wrote it between the request and the answer, in the second that begins with it.
func (s *server) sample(ctx context.Context) (l Latency, c Clock) {
	var took []float64
	lowest, highest, dated := -1e18, 1e18, false
	for range samples {
		if sleep.For(ctx, clock.RealClock{}, sampleEvery) != nil {
			break
		}
		sent := time.Now()
		date, err := s.date(ctx)
		received := time.Now()
		if err != nil {
			c.Problem = upstream.Describe(err)
			continue
		}
		took = append(took, received.Sub(sent).Seconds())
		if date.IsZero() {
			continue
		}
		dated = true
		lowest = max(lowest, date.Sub(received).Seconds())
		highest = min(highest, date.Add(time.Second).Sub(sent).Seconds())
	}
	if n := len(took); n > 0 {
		slices.Sort(took)
		l = Latency{Requests: n, MedianSeconds: took[n/2], WorstSeconds: took[n-1]}
	}
	switch {
	case dated:
		// Servers behind one address may have different clocks: then lowest is above highest.
		c = Clock{AheadSeconds: (lowest + highest) / 2, ErrorSeconds: max(highest-lowest, lowest-highest) / 2}
	case c.Problem == "":
		c.Problem = "the answers have no Date"
	}
	return l, c
}

// date returns the Date of an answer, which is zero if it has none.
func (s *server) date(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, smallTimeout)
	defer cancel()
	resp, err := s.get(ctx, "/version", nil, "application/json")
	if err != nil {
		return time.Time{}, err
	}
	defer resp.Body.Close()
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		date = time.Time{}
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection can be used again
	return date, err
}

// aggregatedDiscovery reports whether the server has all of its discovery in one document.
func (s *server) aggregatedDiscovery(ctx context.Context) Answer {
	ctx, cancel := context.WithTimeout(ctx, smallTimeout)
	defer cancel()
	resp, err := s.get(ctx, "/apis", nil, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	if err != nil {
		return Unknown
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Unknown
	}
	return answerOf(strings.Contains(resp.Header.Get("Content-Type"), "as=APIGroupDiscoveryList"))
}

// watchList reports whether a watch can begin with a list. It watches for an object that does not exist, so that the
// list is empty.
func (s *server) watchList(ctx context.Context, scope Scope, r upstream.Resource) Answer {
	ctx, cancel := context.WithTimeout(ctx, smallTimeout)
	defer cancel()
	path := "/apis/" + r.GVR.Group + "/" + r.GVR.Version
	if r.GVR.Group == "" {
		path = "/api/" + r.GVR.Version
	}
	if scope.Namespace != "" {
		path += "/namespaces/" + scope.Namespace
	}
	resp, err := s.get(ctx, path+"/"+r.GVR.Resource, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {"10"}, "fieldSelector": {"metadata.name=snapcache-check"},
		"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
	}, "application/json")
	if err != nil {
		return Unknown
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return No
	default:
		return Unknown
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if gjson.GetBytes(lines.Bytes(), `object.metadata.annotations.k8s\.io/initial-events-end`).Exists() {
			return Yes
		}
	}
	return No
}

// consistentReads reports whether the server answers lists of the newest state from its cache. No answer shows it, so it
// is read from the metrics, which few users may read.
func (s *server) consistentReads(ctx context.Context) Answer {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	resp, err := s.get(ctx, "/metrics", nil, "text/plain")
	if err != nil {
		return Unknown
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(io.LimitReader(resp.Body, maxMetrics)); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), "} "); strings.HasPrefix(name, `kubernetes_feature_enabled{name="ConsistentListFromCache"`) {
			return answerOf(value == "1")
		}
	}
	return Unknown
}
