package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// parallel is the number of requests under way: most of the time goes into watches that last a
	// second.
	parallel = 48

	// maxTampered is how many answers each tampering is tried on.
	maxTampered = 25
)

// exchange is a request with its answers.
type exchange struct {
	request request
	server  []response
	again   []response // the kube-apiserver's too
	cached  []response
}

// exchanges returns all requests with their answers, by kind. They are sent once.
var exchanges = sync.OnceValues(func() (map[string][]exchange, error) {
	all := map[string][]exchange{}
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(parallel)
	for kind, requests := range newGenerator(*seed, shared.resources).all() {
		all[kind] = make([]exchange, len(requests))
		for i, q := range requests {
			e := &all[kind][i]
			e.request = q
			g.Go(func() error { return e.send(ctx) })
		}
	}
	return all, g.Wait()
})

// send gets the answers, all at the same time.
func (e *exchange) send(ctx context.Context) error {
	asked := e.request
	for _, d := range differences {
		if d.ask != nil {
			asked = d.ask(asked)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	get := func(pages *[]response, from *target, q request) {
		g.Go(func() (err error) {
			*pages, err = from.ask(ctx, q)
			return err
		})
	}
	get(&e.server, shared.server, asked)
	get(&e.again, shared.server, asked)
	get(&e.cached, shared.cached, e.request)
	return g.Wait()
}

// diff returns the difference between the answers of a kube-apiserver and those of a second server,
// but for differences, which it counts in seen; empty if there is none.
func diff(q request, server, second []response, differences []difference, seen map[string]int) string {
	if len(server) != len(second) {
		return fmt.Sprintf("%d pages against %d", len(server), len(second))
	}
	for i := range server {
		a, aErr := settledAnswer(q, server[:i+1])
		b, bErr := settledAnswer(q, second[:i+1])
		if aErr != nil || bErr != nil {
			return fmt.Sprintf("first: %v; second: %v", aErr, bErr)
		}
		for _, d := range differences {
			if d.adapt != nil && d.adapt(q, &a, &b) {
				seen[d.what]++
			}
		}
		for i := range min(len(a.Body), len(b.Body)) {
			a.Body[i], b.Body[i] = alike(a.Body[i], b.Body[i], false)
		}
		var paths differingPaths
		if !cmp.Equal(a, b, cmp.Reporter(&paths)) {
			return strings.Join(paths.lines, "\n")
		}
	}
	return ""
}

// differingPaths is a reporter of cmp: the paths at which two values differ, with the values.
type differingPaths struct {
	path  cmp.Path
	lines []string
}

func (p *differingPaths) PushStep(step cmp.PathStep) { p.path = append(p.path, step) }
func (p *differingPaths) PopStep()                   { p.path = p.path[:len(p.path)-1] }

func (p *differingPaths) Report(r cmp.Result) {
	if r.Equal() {
		return
	}
	var at strings.Builder
	for _, step := range p.path {
		switch s := step.(type) {
		case cmp.StructField:
			at.WriteString(s.Name())
		case cmp.MapIndex:
			fmt.Fprintf(&at, ".%v", s.Key())
		case cmp.SliceIndex:
			first, second := s.SplitKeys()
			fmt.Fprintf(&at, "[%d]", max(first, second))
		}
	}
	first, second := p.path.Last().Values()
	p.lines = append(p.lines, fmt.Sprintf("%s: %.300s | %.300s", &at, text(first), text(second)))
}

func text(v reflect.Value) string {
	if !v.IsValid() {
		return "absent"
	}
	return fmt.Sprintf("%#v", v)
}

// settledAnswer returns the answer in the last page, settled.
func settledAnswer(q request, pages []response) (answer, error) {
	if err := oneRevision(pages); err != nil {
		return answer{}, err
	}
	a, err := answerOf(pages[len(pages)-1])
	if err != nil {
		return a, err
	}
	return a, settle(q, &a)
}

// oneRevision returns an error if the pages of a list have different resourceVersions.
func oneRevision(pages []response) error {
	if len(pages) == 1 {
		return nil
	}
	var first string
	for i, page := range pages {
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(page.body, &list); err != nil {
			return fmt.Errorf("page %d: %w", i, err)
		}
		if i == 0 {
			first = list.ResourceVersion
		}
		if list.ResourceVersion != first {
			return fmt.Errorf("page %d has resourceVersion %q, the first has %q", i, list.ResourceVersion, first)
		}
	}
	return nil
}

// report reports the exchanges whose answers differ.
func report(t *testing.T, exchanges []exchange, second func(exchange) []response, differences []difference, seen map[string]int) {
	t.Helper()
	found := 0
	for _, e := range exchanges {
		d := diff(e.request, e.server, second(e), differences, seen)
		if d == "" {
			continue
		}
		if found++; found <= *reported {
			t.Errorf("%s\nfirst | second\n%.3000s\nfirst answered %s\nsecond answered %s", e.request, d, describe(e.server), describe(second(e)))
		}
	}
	t.Logf("%d of %d answers differ (-seed %d)", found, len(exchanges), *seed)
}

func ofServer(e exchange) []response { return e.again }
func ofAgent(e exchange) []response  { return e.cached }

// TestServerEqualsItself compares the kube-apiserver with itself: the requests have one answer, and
// the comparison finds no difference between equal ones.
func TestServerEqualsItself(t *testing.T) {
	all, err := exchanges()
	require.NoError(t, err)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		t.Run(kind, func(t *testing.T) { report(t, all[kind], ofServer, nil, nil) })
	}
}

// TestAgentEqualsServer compares the agent with the kube-apiserver. Each documented difference has to
// be seen.
func TestAgentEqualsServer(t *testing.T) {
	all, err := exchanges()
	require.NoError(t, err)
	seen := map[string]int{}
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		t.Run(kind, func(t *testing.T) { report(t, all[kind], ofAgent, differences, seen) })
	}
	for _, d := range differences {
		if d.adapt != nil && seen[d.what] == 0 {
			t.Errorf("no answer shows the documented difference %q", d.what)
		}
	}
	t.Logf("documented differences seen: %v", seen)
}

// TestTampering changes answers that are equal, one by one, and expects that each change is noticed,
// and not taken for a documented difference.
func TestTampering(t *testing.T) {
	all, err := exchanges()
	require.NoError(t, err)
	var equal []exchange
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		for _, e := range all[kind] {
			bookmarks := bytes.Contains(e.cached[0].body, []byte(`"type":"BOOKMARK"`)) && !e.request.asksForInitialEvents()
			if !bookmarks && diff(e.request, e.server, e.cached, nil, nil) == "" {
				equal = append(equal, e)
			}
		}
	}
	rand.New(rand.NewPCG(*seed, 1)).Shuffle(len(equal), func(i, j int) { equal[i], equal[j] = equal[j], equal[i] })
	for _, c := range tamperings {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			changed := 0
			for _, e := range equal {
				pages, ok := c.apply(e.cached)
				if !ok {
					continue
				}
				require.NotEmpty(t, diff(e.request, e.server, pages, differences, map[string]int{}), "%s\nanswered %s", e.request, describe(pages))
				if changed++; changed == maxTampered {
					break
				}
			}
			require.Positive(t, changed, "no answer can be changed so")
		})
	}
}
