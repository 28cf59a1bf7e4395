package house_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Limits of the product's code: a struct that needs more fields is two types, unless it is options,
// and a JSON document embeds the second one; a longer file has two nouns; and a lock that the caller
// has to hold is a type that holds it, or in the function's name.
const (
	maxFields = 20
	maxLines  = 500
)

// callerHolds matches "the caller holds the lock", and "the caller of an unexported method holds it".
var callerHolds = regexp.MustCompile(`\bcaller\b[^.]*\bholds\b`)

// notProduct are the directories without product code.
var notProduct = []string{"bench", "clockstest", "demo", "examples", "storetest", "test", "testdata", "tools"}

func TestBudget(t *testing.T) {
	eachProductFile(t, func(path string, src []byte, file *ast.File) {
		if n := bytes.Count(src, []byte("\n")); n > maxLines {
			t.Errorf("%s: %d lines, the limit is %d", path, n, maxLines)
		}
		for _, group := range file.Comments {
			if text := strings.ToLower(strings.Join(strings.Fields(group.Text()), " ")); callerHolds.MatchString(text) {
				t.Errorf("%s: %q: make it a method of a type that holds the lock, or end its name with Locked", path, text)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if n := numFields(fields); ok && n > maxFields && !isOptions(spec.Name.Name) {
				t.Errorf("%s: %s has %d fields, the limit is %d", path, spec.Name.Name, n, maxFields)
			}
			return true
		})
	})
}

// eachProductFile calls f with each Go file of the product, and its path in the project.
func eachProductFile(t *testing.T, f func(path string, src []byte, file *ast.File)) {
	passed := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (slices.Contains(notProduct, name) || strings.HasPrefix(name, ".")) {
				passed[name] = true
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f(filepath.ToSlash(rel), src, file)
		return nil
	})
	require.NoError(t, err)
	for _, name := range notProduct {
		require.True(t, passed[name], "there is no directory %s", name)
	}
}

func isOptions(name string) bool { return strings.HasSuffix(strings.ToLower(name), "options") }

func numFields(s *ast.StructType) (n int) {
	if s == nil {
		return 0
	}
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}
