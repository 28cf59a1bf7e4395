package house_test

import (
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wallTime has the files that ask a clock for the time, and why a wrong one does no harm there:
//
//   - monotonic: the time is compared with times of this process alone, by their monotonic readings.
//   - shown: it is for people, or dates what is stored; nothing is decided by it.
//   - compared: it is compared with a stored time or one of another machine, and either may be wrong:
//     see package internal/clocks. The tests that show it are named, with their folder if that is another.
var wallTime = map[string]string{
	"access/authenticator.go":                           "compared: TestTokens_WrongClock, TestAudiences_WrongClock",
	"access/authorizer.go":                              "compared: TestDecisions_WrongClock",
	"access/ownrules.go":                                "compared: TestDecisions_WrongClock",
	"agent/agent.go":                                    "shown",
	"agent/internal/backup/backup.go":                   "compared: TestSchedule_WrongClock, TestSchedule_WrongClock_NeverLate",
	"agent/internal/collection/describe.go":             "monotonic",
	"agent/internal/collection/doubt.go":                "monotonic",
	"agent/internal/collection/serve.go":                "compared: TestFreshness_WrongClock",
	"agent/internal/collection/stall.go":                "monotonic",
	"agent/internal/collection/tracker.go":              "monotonic",
	"agent/internal/database/database.go":               "shown",
	"agent/internal/kubernetes/access.go":               "compared: access TestDecisions_WrongClock",
	"agent/internal/kubernetes/kubernetes.go":           "compared: kubeapi/serving TestCertificateClocks",
	"agent/internal/kubernetes/kubelet.go":              "compared: TestKubelet_Renewal",
	"agent/internal/purge/purge.go":                     "monotonic, shown",
	"agent/internal/repair/repair.go":                   "monotonic",
	"agent/internal/status/metrics.go":                  "compared: pipeline TestAgeMetric_WrongClock",
	"agent/internal/status/status.go":                   "compared: TestFreshness_WrongClock",
	"agent/internal/verify/key.go":                      "monotonic",
	"agent/internal/verify/verify.go":                   "monotonic, shown",
	"agent/reload.go":                                   "shown",
	"agent/report.go":                                   "monotonic",
	"agent/watchdog.go":                                 "monotonic",
	"cmd/snapcache/changes.go":                          "shown",
	"cmd/snapcache/internal/clustercheck/check.go":      "monotonic",
	"cmd/snapcache/internal/clustercheck/collection.go": "monotonic",
	"cmd/snapcache/internal/clustercheck/server.go":     "compared: TestNotes",
	"cmd/snapcache/internal/clustercheck/transport.go":  "monotonic",
	"cmd/snapcache/reset.go":                            "shown",
	"cmd/snapcache/serve.go":                            "compared: kubeapi/serving TestCertificateClocks",
	"cmd/snapcache/snapshot.go": "compared: TestAgeOf, snapshot TestPrune_WrongClock, " +
		"snapshot TestNamesSortByTime",
	"cmd/snapcache/status.go":                   "shown",
	"cmd/snapcache/terminal.go":                 "monotonic",
	"informer/durable/file.go":                  "monotonic",
	"informer/metrics.go":                       "compared: pipeline TestAgeMetric_WrongClock",
	"informer/processor.go":                     "monotonic",
	"kubeapi/admit.go":                          "monotonic",
	"kubeapi/columns.go":                        "shown",
	"kubeapi/documents/mirror.go":               "compared: TestMirror, TestMirror_Asked",
	"kubeapi/events.go":                         "monotonic",
	"kubeapi/forward/exchange.go":               "monotonic",
	"kubeapi/forward/identity.go":               "compared: TestIdentity_WrongClock",
	"kubeapi/frames.go":                         "shown",
	"kubeapi/fresh.go":                          "compared: TestStaleness",
	"kubeapi/get.go":                            "shown",
	"kubeapi/limits.go":                         "monotonic",
	"kubeapi/list.go":                           "shown",
	"kubeapi/openapi/serve.go":                  "shown",
	"kubeapi/cursor.go":                         "monotonic",
	"kubeapi/serving/server.go":                 "monotonic",
	"kubeapi/serving/users.go":                  "monotonic",
	"kubeapi/signed/certificate.go":             "compared: TestCertificate_WrongClock",
	"kubeapi/subjectreview.go":                  "shown",
	"kubeapi/tokens/handler.go":                 "compared: TestTokenNotRepeated",
	"kubeapi/watch.go":                          "monotonic",
	"localapi/changes.go":                       "compared: TestChanges_WrongClock",
	"localapi/dbsource.go":                      "compared: TestAge_UnknownIsNotFresh",
	"localapi/server.go":                        "monotonic",
	"localapi/statuspage/browse.go":             "shown",
	"localapi/statuspage/handler.go":            "monotonic, shown",
	"localapi/statuspage/object.go":             "shown",
	"pipeline/loop.go":                          "monotonic, shown",
	"pipeline/proof.go":                         "monotonic",
	"pipeline/stats.go":                         "monotonic",
	"reflector/reflector.go":                    "monotonic",
	"reflector/spread.go":                       "monotonic",
	"reflector/watch.go":                        "monotonic",
	"store/bolt/build.go":                       "monotonic",
	"store/bolt/compact.go":                     "monotonic",
	"store/bolt/internal/boltfile/committer.go": "monotonic",
	"store/bolt/internal/boltfile/open.go":      "shown",
	"store/bolt/internal/writeback/fold.go":     "monotonic",
	"store/bolt/internal/writeback/log.go":      "monotonic",
	"store/bolt/rekey.go":                       "monotonic",
	"store/bolt/trim.go":                        "compared: TestHistoryRetention_WrongClock",
	"upstream/failover.go":                      "monotonic",
	"upstream/link.go":                          "monotonic",
	"upstream/list.go":                          "monotonic",
	"upstream/missed.go":                        "monotonic",
}

// TestWallTime checks that each file of the product that asks a clock for the time is in the list, with
// the reason why it may.
func TestWallTime(t *testing.T) {
	found := map[string]bool{}
	eachProductFile(t, func(name string, _ []byte, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && asksClock(call) {
				found[name] = true
			}
			return true
		})
	})
	for name, why := range wallTime {
		if tests, ok := strings.CutPrefix(why, "compared: "); ok {
			for test := range strings.SplitSeq(tests, ", ") {
				folder, test, ok := strings.Cut(test, " ")
				if !ok {
					folder, test = path.Dir(name), folder
				}
				require.True(t, hasTest(t, folder, test), "%s: there is no %s in %s", name, test, folder)
			}
			continue
		}
		for word := range strings.SplitSeq(why, ", ") {
			require.Contains(t, []string{"monotonic", "shown"}, word, name)
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(wallTime)), slices.Sorted(maps.Keys(found)))
}

// hasTest reports whether a folder has a test.
func hasTest(t *testing.T, folder, test string) bool {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(src), "\nfunc "+test+"(t *testing.T)") {
			return true
		}
	}
	return false
}

// asksClock reports whether a call is of Now, Since or Until, of package time or a clock.
func asksClock(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Now", "Since", "Until"}, f.Sel.Name) {
		return false
	}
	of := ""
	switch x := f.X.(type) {
	case *ast.Ident:
		of = x.Name
	case *ast.SelectorExpr:
		of = x.Sel.Name
	}
	of = strings.ToLower(of)
	return of == "time" || of == "c" || of == "clk" || strings.HasSuffix(of, "clock")
}
