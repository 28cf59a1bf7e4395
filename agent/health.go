package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof" //nolint:gosec // registers itself with a mux that nobody serves
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/snapcache/snapcache/agent/internal/sleep"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
)

// inStepEvery is how often it is looked whether all is in step, where systemd is to be
// told only then.
const inStepEvery = time.Second

// check is one thing that has to be so, for /livez and /readyz.
type check struct {
	name string
	is   string // in words
	bad  bool
}

// healthHandlers adds /livez, which fails where the agent has to be restarted, and
// /readyz, which fails where what is asked of the cache gets no answer that is complete
// and fresh enough. The body is "ok"; with ?verbose, and where something failed, it has a
// line for each thing that was looked at.
func (a *Agent) healthHandlers(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) { answer(w, r, "livez", a.live()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, "readyz", append(a.live(), a.fresh()...))
	})
}

// profileHandlers adds the profiles of net/http/pprof. What is cached may be in them.
func profileHandlers(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// answer writes what came of checks, as a kube-apiserver writes its own.
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

// live says whether the agent works at all.
func (a *Agent) live() []check {
	database := check{name: "database", is: "ok"}
	if _, err := a.db.Collections(); err != nil {
		database = check{"database", "failed: it does not answer", true}
	}
	return []check{database, a.pipeline()}
}

// pipeline says whether what comes from the server gets into the store: see healthy.
func (a *Agent) pipeline() check {
	if stuck := a.stalled.Load(); stuck != nil {
		return check{"pipeline", "failed: " + *stuck, true}
	}
	return check{name: "pipeline", is: "ok"}
}

// fresh says of each collection whether it can be read, and is as fresh as the
// configuration wants it.
func (a *Agent) fresh() []check {
	limit := a.config().Health.MaxStaleness.Duration
	var checks []check
	for _, c := range a.all() {
		checks = append(checks, freshness(c.ID, a.describe(c, c.Tracker.Stats()), limit))
	}
	slices.SortFunc(checks, func(x, y check) int { return strings.Compare(x.name, y.name) })
	return checks
}

// freshness judges one collection. A limit of 0 is none.
func freshness(id string, s localapi.Collection, limit time.Duration) check {
	objects := humanize.Comma(s.Objects) + " objects"
	switch {
	case !s.Synced:
		return check{id, "failed: never synced", true}
	case s.InStep:
		return check{id, "ok: in step, " + objects, false}
	case limit > 0 && s.AgeSeconds > limit.Seconds():
		return check{id, fmt.Sprintf("failed: %s old, more than health.maxStaleness (%s)", localapi.Age(s.AgeSeconds), localapi.Age(limit.Seconds())), true}
	}
	return check{id, "ok: " + localapi.Age(s.AgeSeconds) + " old, " + objects, false}
}

// tellReady tells systemd that the service is up, as soon as the configuration calls it
// so. Until then systemd waits, and is told for what.
func (a *Agent) tellReady(ctx context.Context) {
	for {
		reloaded := a.nextReload()
		missing := ""
		if a.config().Health.ReadyWhen == config.ReadyInStep {
			missing = a.notInStep()
		}
		if missing == "" {
			a.ready.Store(true)
			a.tell(a.notifier.Ready())
			return
		}
		a.tell(a.notifier.Starting("waiting to be in step: " + missing))
		if sleep.UnlessWoken(ctx, a.clock, inStepEvery, reloaded) != nil {
			return
		}
	}
}

// notInStep names the collections that are not, "" where all are.
func (a *Agent) notInStep() string {
	var missing []string
	for _, c := range a.all() {
		if !a.describe(c, c.Tracker.Stats()).InStep {
			missing = append(missing, c.ID)
		}
	}
	return strings.Join(missing, ", ")
}
