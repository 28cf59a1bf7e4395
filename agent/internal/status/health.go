package status

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/snapcache/snapcache/localapi"
)

// check is a condition of /livez or /readyz.
type check struct {
	name string
	is   string // in words
	bad  bool
}

// HealthHandlers adds /livez, which fails if the agent has to be restarted, and /readyz, which fails
// if the cache has no answers that are complete and fresh enough. The body is "ok"; with ?verbose, and
// if a check failed, it has a line for each check.
func (r *Reporter) HealthHandlers(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, req *http.Request) { answer(w, req, "livez", r.live()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) {
		answer(w, req, "readyz", append(r.live(), r.fresh()...))
	})
}

// answer writes the results of checks in the form of a kube-apiserver.
func answer(w http.ResponseWriter, r *http.Request, name string, checks []check) {
	var lines strings.Builder
	code, end := http.StatusOK, name+" check passed\n"
	for _, c := range checks {
		sign := "[+]"
		if c.bad {
			sign, code, end = "[-]", http.StatusServiceUnavailable, name+" check failed\n"
		}
		fmt.Fprintf(&lines, "%s%s %s\n", sign, c.name, c.is)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	body := "ok"
	if code != http.StatusOK || r.URL.Query().Has("verbose") {
		body = lines.String() + end
	}
	_, _ = w.Write([]byte(body)) // a client that is gone needs no answer
}

// live checks whether the agent works at all: whether the database can be read, and whether changes from the
// server reach it.
func (r *Reporter) live() []check {
	checks := []check{{name: "database", is: "ok"}, {name: "pipeline", is: "ok"}}
	if _, err := r.opts.DB.Collections(); err != nil {
		checks[0] = check{"database", "failed: it does not answer", true}
	}
	if stuck := r.opts.Stalled(); stuck != "" {
		checks[1] = check{"pipeline", "failed: " + stuck, true}
	}
	return checks
}

// fresh checks for each collection whether it can be read, and is as fresh as configured.
func (r *Reporter) fresh() []check {
	limit := r.opts.Config().Health.MaxStaleness.Duration
	var checks []check
	for _, c := range r.opts.All() {
		checks = append(checks, freshness(c.ID, r.Describe(c, c.Tracker.Stats()), limit))
	}
	slices.SortFunc(checks, func(x, y check) int { return strings.Compare(x.name, y.name) })
	return checks
}

// freshness judges one collection. A limit of 0 is none.
func freshness(id string, s localapi.Collection, limit time.Duration) check {
	switch {
	case !s.Synced:
		return check{id, "failed: " + s.Freshness(), true}
	case !s.CaughtUp && limit > 0 && s.AgeUnknown:
		return check{id, fmt.Sprintf("failed: %s, which is not within health.maxStaleness (%s)", s.Freshness(), localapi.Age(limit.Seconds())), true}
	case !s.CaughtUp && limit > 0 && s.AgeSeconds > limit.Seconds():
		return check{id, fmt.Sprintf("failed: %s, more than health.maxStaleness (%s)", s.Freshness(), localapi.Age(limit.Seconds())), true}
	}
	return check{id, "ok: " + s.Freshness() + ", " + humanize.Comma(s.Objects) + " objects", false}
}

// NotCaughtUp names the collections that are not caught up, "" if all are.
func (r *Reporter) NotCaughtUp() string {
	var missing []string
	for _, c := range r.opts.All() {
		if !r.Describe(c, c.Tracker.Stats()).CaughtUp {
			missing = append(missing, c.ID)
		}
	}
	return strings.Join(missing, ", ")
}
