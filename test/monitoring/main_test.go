package monitoring

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

const (
	folder    = "../../monitoring"
	rulesFile = folder + "/alerts.yaml"
	boardFile = folder + "/grafana-dashboard.json"
	runbook   = "../../docs/runbook.md"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false)
	require.Empty(t, errs)
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// metrics are the names of what an expression selects.
func metrics(t *testing.T, expression string) []string {
	t.Helper()
	parsed, err := parser.ParseExpr(expression)
	require.NoError(t, err, expression)
	var names []string
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			names = append(names, s.Name)
			for _, m := range s.LabelMatchers {
				if m.Type == labels.MatchRegexp {
					require.NotEmpty(t, m.Value, expression)
				}
			}
		}
		return nil
	})
	require.NotEmpty(t, names, expression)
	return names
}

// requireOurs wants all metrics to be the agent's, of which test/e2e makes sure that they
// exist, or the one that Prometheus makes itself.
func requireOurs(t *testing.T, expression string) {
	t.Helper()
	for _, name := range metrics(t, expression) {
		require.Regexp(t, `^(snapcache_[a-z_]+|up)$`, name, expression)
	}
}

// TestRules runs the tests of the rules.
func TestRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool to test the rules with: install one (Debian's package prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	tests := read(t, folder+"/alerts_test.yaml")
	for _, r := range rules(t) {
		require.Contains(t, tests, r.Alert, "an alert without a test")
	}
}

// TestRunbook: each alert leads to a section of its own that explains what it means, how to
// look and what to do, and there is no section for an alert that does not exist.
func TestRunbook(t *testing.T) {
	docs := read(t, runbook)
	alerts := map[string]bool{}
	for _, r := range rules(t) {
		requireOurs(t, r.Expr)
		made := regexp.MustCompile(`_certificate_not_(before|after)_timestamp_seconds`).ReplaceAllString(r.Expr, "") // by a signer
		require.NotContains(t, made, "_timestamp_seconds", "%s: the node's clock made it, which may be wrong", r.Alert)
		alerts[r.Alert] = true
		url := r.Annotations["runbook_url"]
		require.Equal(t, "docs/runbook.md#"+strings.ToLower(r.Alert), url)
		_, section, found := strings.Cut(docs, "\n### "+r.Alert+"\n")
		require.True(t, found, "docs/runbook.md has no section %s", r.Alert)
		section, _, _ = strings.Cut(section, "\n#")
		require.GreaterOrEqual(t, len(strings.Fields(section)), 25, "the section %s is too short", r.Alert)
		require.Contains(t, section, "**Look:**", r.Alert)
		require.Contains(t, section, "**Do:**", r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["description"], r.Alert)
		require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Snapcache\w+)$`).FindAllStringSubmatch(docs, -1) {
		require.True(t, alerts[m[1]], "docs/runbook.md has a section for %s, which is no alert", m[1])
	}
}

// board is what a test needs of a dashboard.
type board struct {
	Title      string
	UID        string
	Templating struct {
		List []struct {
			Name, Type, Definition string
			Datasource             datasource
		}
	}
	Panels []panel
}

type panel struct {
	Title, Type, Description string
	Datasource               datasource
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		Expr       string
		Datasource datasource
	}
}

type datasource struct{ Type, UID string }

// TestDashboard parses what a Grafana would ask a Prometheus.
func TestDashboard(t *testing.T) {
	text := read(t, boardFile)
	var b board
	require.NoError(t, json.Unmarshal([]byte(text), &b))
	variables := map[string]string{"$__rate_interval": "5m"}
	for _, v := range b.Templating.List {
		variables["$"+v.Name] = ".+"
		if v.Type == "query" {
			require.Equal(t, datasource{"prometheus", "${datasource}"}, v.Datasource)
			expression, _, _ := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ", "+v.Name)
			requireOurs(t, expand(t, expression, variables))
		}
	}
	taken := map[[2]int]string{}
	for _, p := range b.Panels {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			require.Less(t, x, 24, p.Title)
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], "%s lies on another panel", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.Equal(t, datasource{"prometheus", "${datasource}"}, p.Datasource, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.Equal(t, datasource{"prometheus", "${datasource}"}, target.Datasource, p.Title)
			requireOurs(t, expand(t, target.Expr, variables))
		}
		require.NotEmpty(t, p.Description, p.Title)
	}
	require.NotContains(t, text, "${DS_", "an input that only an import by hand would fill")
}

// expand puts values in the place of variables, as Grafana does.
func expand(t *testing.T, expression string, variables map[string]string) string {
	t.Helper()
	expanded := regexp.MustCompile(`\$\w+`).ReplaceAllStringFunc(expression, func(v string) string {
		value, ok := variables[v]
		require.True(t, ok, "%s: there is no variable %s", expression, v)
		return value
	})
	require.NotContains(t, expanded, "$", expression)
	return expanded
}

// TestFolderIsComplete: what is in the folder is what is tested here.
func TestFolderIsComplete(t *testing.T) {
	files, err := filepath.Glob(folder + "/*")
	require.NoError(t, err)
	require.Equal(t, []string{rulesFile, folder + "/alerts_test.yaml", boardFile}, files)
}
