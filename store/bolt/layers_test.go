package bolt_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	bboltPackage = "go.etcd.io/bbolt"
	thisPackage  = "github.com/snapcache/snapcache/store/bolt"
)

// listImports returns the packages that go list prints for a package and a template.
func listImports(t *testing.T, pkg, template string) []string {
	cmd := exec.Command("go", "list", "-deps", "-f", template, pkg)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return strings.Fields(string(out))
}

// The layers, from the bottom: format, boltfile, writeback, and the package itself.
func TestLayers(t *testing.T) {
	direct := func(pkg string) []string {
		return listImports(t, pkg, `{{if eq .ImportPath "`+pkg+`"}}{{join .Imports " "}}{{end}}`)
	}
	internal := thisPackage + "/internal/"
	for _, c := range []struct {
		name   string
		pkg    string
		direct []string // packages that it must not import itself
		deps   []string // packages that it must not import even indirectly
	}{
		{"format does no I/O", internal + "format", []string{"os", "io"}, []string{bboltPackage, internal + "boltfile", internal + "writeback", thisPackage}},
		{"boltfile is below writeback", internal + "boltfile", nil, []string{internal + "writeback", thisPackage}},
		{"writeback has its file from boltfile", internal + "writeback", []string{bboltPackage, bboltPackage + "/errors", "os"}, []string{thisPackage}},
		{"only boltfile imports bbolt", thisPackage, []string{bboltPackage, bboltPackage + "/errors"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pkg := range direct(c.pkg) {
				require.NotContains(t, c.direct, pkg)
			}
			for _, pkg := range listImports(t, c.pkg, `{{.ImportPath}}`) {
				if pkg != c.pkg {
					require.NotContains(t, c.deps, pkg)
				}
			}
		})
	}
}

// Limits that keep the types of the store apart: a struct that needs more fields is two, and
// a comment about a lock that the caller has to hold is a method of a type that holds it.
const (
	maxFields = 20
	maxLines  = 500
)

func TestBudget(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := bytes.Count(src, []byte("\n")); n > maxLines {
			t.Errorf("%s: %d lines, the limit is %d", path, n, maxLines)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, group := range file.Comments {
			if text := strings.ToLower(strings.Join(strings.Fields(group.Text()), " ")); strings.Contains(text, "caller holds") {
				t.Errorf("%s: %q: make it a method of locked", path, text)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if n := numFields(fields); ok && n > maxFields && !strings.HasSuffix(spec.Name.Name, "Options") {
				t.Errorf("%s: %s has %d fields, the limit is %d", path, spec.Name.Name, n, maxFields)
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
}

func numFields(s *ast.StructType) (n int) {
	if s == nil {
		return 0
	}
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}
