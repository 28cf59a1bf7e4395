package library

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

var clientGoVersions = flag.String("clientgo.versions", "", "versions of client-go whose own tests TestClientGoSuite runs, separated by spaces")

// cachePackage is the package of client-go that makes shared informers.
const cachePackage = "k8s.io/client-go/tools/cache"

// internal are the tests of client-go that look into its own informer, which is not in use, and until035 one that
// does so up to 0.35.
var internal = []string{"TestResyncCheckPeriod", "TestSharedInformerWatchDisruption", "TestMutationDetector"}

const until035 = "TestListenerResyncPeriods"

// TestClientGoSuite runs client-go's own tests of its shared informers on the client-go that snapcache-overlay writes:
// as it is, and with a constructor that makes ours.
func TestClientGoSuite(t *testing.T) {
	if *clientGoVersions == "" {
		t.Skip("no -clientgo.versions: make test-client-go runs it")
	}
	for version := range strings.FieldsSeq(*clientGoVersions) {
		t.Run(version, func(t *testing.T) {
			s := newSuite(t, version)
			passed, failed := s.run()
			require.Empty(t, failed, "without a constructor")
			require.Greater(t, passed, 80)
			t.Logf("without a constructor: %d tests passed", passed)

			skipped := s.useOurs()
			passed, failed = s.run()
			require.Empty(t, failed, "with our informers")
			require.Greater(t, passed, 80)
			t.Logf("with our informers: %d tests passed, %d look into client-go's own", passed, len(skipped))
		})
	}
}

// suite is client-go's package of informers, as an overlay has it.
type suite struct {
	t          *testing.T
	version    string // of client-go
	dir, cache string // of the module, and of the package's copy
	flags      []string
}

func newSuite(t *testing.T, version string) *suite {
	dir := t.TempDir()
	mod := fmt.Sprintf("module example.com/suite\n\ngo 1.26.0\n\nrequire k8s.io/client-go %s\n", version)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
	main := fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", cachePackage)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(main), 0o600))
	return &suite{t: t, version: version, dir: dir, cache: filepath.Join(dir, ".snapcache", "client-go", "tools", "cache"), flags: overlayFlags(t, dir, ".")}
}

// run returns how many tests passed, and which failed.
func (s *suite) run() (passed int, failed []string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "go", slices.Concat([]string{"test", "-trimpath", "-json", "-vet=off", "-count=1"}, s.flags, []string{cachePackage})...)
	cmd.Dir = s.dir
	result := harness.RunToEnd(s.t, cmd)
	outputs := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(result.Stdout)); ; {
		var e struct{ Action, Test, Output string }
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(s.t, err, "%s%s", result.Stdout, result.Stderr)
		}
		outputs[e.Test] += e.Output
		switch {
		case e.Action == "pass" && e.Test != "" && !strings.Contains(e.Test, "/"):
			passed++
		case e.Action == "fail" && !strings.Contains(e.Test, "/"):
			failed = append(failed, e.Test)
		}
	}
	require.NotZero(s.t, passed, "%s%s", result.Stdout, result.Stderr)
	failed = slices.DeleteFunc(failed, func(test string) bool { return test == "" }) // the package
	for _, test := range failed {
		s.t.Logf("%s:\n%s", test, outputs[test])
	}
	return passed, failed
}

// useOurs has the tests use our informers, and returns the ones that can't.
func (s *suite) useOurs() (skipped []string) {
	s.t.Helper()
	ours := harness.ReadFile(s.t, filepath.Join(harness.Root(s.t), "test", "library", "testdata", "clientgo", "ours_test.go.txt"))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.cache, "ours_test.go"), ours, 0o600))
	for _, name := range []string{"shared_informer_test.go", "mutation_detector_test.go"} {
		files, path := token.NewFileSet(), filepath.Join(s.cache, name)
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(s.t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case ok && strings.HasPrefix(f.Name.Name, "Test") && looksInside(f.Body):
				f.Body.List = slices.Insert(f.Body.List, 0, parsed("t.SkipNow()"))
				skipped = append(skipped, f.Name.Name)
			case ok && f.Recv == nil:
				ast.Inspect(f.Body, askTheInterface)
			}
		}
		var text bytes.Buffer
		require.NoError(s.t, format.Node(&text, files, file))
		require.NoError(s.t, os.WriteFile(path, text.Bytes(), 0o600))
	}
	want := internal
	if s.version < "v0.36" {
		want = append(slices.Clone(internal), until035)
	}
	require.ElementsMatch(s.t, want, skipped)
	return skipped
}

// looksInside reports whether a test uses a field of client-go's own informer.
func looksInside(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"clock", "processor", "cacheMutationDetector"}, s.Sel.Name) {
			of, isName := s.X.(*ast.Ident)
			found = found || isName && of.Name == "informer"
		}
		return !found
	})
	return found
}

// askTheInterface takes out of a node what only client-go's own informer can answer: its type, and conditions on how
// many handlers it has.
func askTheInterface(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, e := range n.Rhs {
			if a, ok := e.(*ast.TypeAssertExpr); ok && isCall(a.X, "NewSharedInformer") {
				a.Type = ast.NewIdent("SharedIndexInformer")
			}
		}
	case *ast.IfStmt:
		if asksInside(n.Cond) {
			n.Cond = &ast.BinaryExpr{X: ast.NewIdent("false"), Op: token.LAND, Y: &ast.ParenExpr{X: n.Cond}}
		}
	}
	return true
}

// parsed returns a statement that is a call.
func parsed(call string) ast.Stmt {
	e, err := parser.ParseExpr(call)
	if err != nil {
		panic(err)
	}
	return &ast.ExprStmt{X: e}
}

// asksInside reports whether a condition is one of client-go's own informer.
func asksInside(cond ast.Expr) (found bool) {
	ast.Inspect(cond, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && isCall(e, "eventHandlerCount", "isStarted", "isRegistered") {
			found = true
		}
		return !found
	})
	return found
}

func isCall(e ast.Expr, names ...string) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := c.Fun.(*ast.Ident)
	return ok && slices.Contains(names, f.Name)
}
