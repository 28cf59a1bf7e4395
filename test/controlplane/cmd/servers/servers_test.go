package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
)

// TestScenarios: each test that a scenario names exists.
func TestScenarios(t *testing.T) {
	root, err := controlplane.Root()
	require.NoError(t, err)
	tests := make(map[string]bool)
	for _, folder := range []string{"e2e", "kubeapi", "library"} {
		files, err := filepath.Glob(filepath.Join(root, "test", folder, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing.T\)`).FindAllSubmatch(b, -1) {
				tests[folder+"/"+string(m[1])] = true
			}
		}
	}
	short := false
	for _, s := range scenarios {
		short = short || s.short
		for _, name := range s.tests {
			require.True(t, tests[name], "%s: %s", s.title, name)
		}
	}
	require.True(t, short)
	for _, e := range exceptions {
		require.True(t, tests[e.test], e.test)
	}
}

// TestPage writes the results of three servers: one whose tests passed, one with a failed test, and one on kine.
func TestPage(t *testing.T) {
	etcd, kine := controlplane.Server{Version: "v1.31.14"}, controlplane.Server{Version: "v1.29.6", Kine: true}
	passed := func(s controlplane.Server) *result {
		r := &result{Server: s, When: time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC), Revision: "abc", Counted: map[string]int{}}
		for folder, names := range testsOf(s, false) {
			for _, n := range names {
				r.Passed = append(r.Passed, folder+"/"+n)
			}
		}
		return r
	}
	bad := passed(controlplane.Server{Version: "v1.30.14"})
	bad.Failed, bad.Passed = bad.Passed[:1], bad.Passed[1:]
	all := results{etcd.String(): passed(etcd), kine.String(): passed(kine), bad.Server.String(): bad}
	all["1.31"].count("    x_test.go:1: counted: 12 changes, 3 kills\n")

	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, all.write(page))
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	text := string(b)
	require.Contains(t, text, "| | 1.30 | 1.31 | 1.29-kine |")
	require.Regexp(t, `\| v1.31.14 \| etcd \| \d+ \| 0 \| 12 \| 3 \| 0 \| 2026-11-27 \| abc \|`, text)
	require.Equal(t, 1, strings.Count(text, "**failed**"))
	require.Contains(t, text, "| Outage past a compaction | ✓ | ✓ | ✓ 1 |")
	require.Contains(t, text, "\n1. The test writes objects into etcd past")
	again, err := readResults(page)
	require.NoError(t, err)
	require.Equal(t, all, again)

	require.Equal(t, "Kubernetes 1.31, and k3s's datastore with 1.29", all.summary())

	require.Empty(t, all["1.31"].left("e2e", testsOf(etcd, false)["e2e"]))
	folder, name, _ := strings.Cut(bad.Failed[0], "/")
	require.Equal(t, []string{name}, bad.left(folder, testsOf(bad.Server, false)[folder]))

	delete(all, "1.30")
	all["1.31"].Passed = nil
	require.Contains(t, all.page(), "not run")
}

// TestReadme: README names the servers that the page has.
func TestReadme(t *testing.T) {
	root, err := controlplane.Root()
	require.NoError(t, err)
	all, err := readResults(filepath.Join(root, "docs", "compatibility.md"))
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(readme)), " "), "Tested with "+all.summary()+" ([compatibility]")
}
