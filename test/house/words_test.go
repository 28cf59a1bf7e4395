package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
)

// TestStatusWords checks that the words for a status, and the names of metrics, are made in one
// place each, and that commands and pages put no field of a status into words of their own.
func TestStatusWords(t *testing.T) {
	words := []struct{ word, file string }{
		{"caught up", "localapi/summary.go"},
		{"changes can't be stored", "localapi/summary.go"},
		{"the newest configuration was refused", "localapi/summary.go"},
		{"no snapshot could be made", "localapi/summary.go"},
		{"could not be compared with the server", "localapi/summary.go"},
		{"verify --repair fixes it", "localapi/summary.go"},
		{"encrypted with key", "localapi/summary.go"},
		{"snapcache_", "pipeline/metrics.go"},
	}
	fields := []string{
		"Phase", "Untrusted", "ForbiddenSeconds", "EncryptionKey", "EncryptionDue", "Made", "Failed", "Drift",
		"ManyDiffer", "Relisted", "Undecided",
	}
	exist := map[string]bool{}
	statusNames(reflect.TypeFor[localapi.Status](), exist)
	for _, name := range fields {
		require.True(t, exist[name], "no type of a localapi.Status has the field or method %s", name)
	}
	const copied = "localapi/statuspage/bare.go" // copies fields of a status
	require.FileExists(t, filepath.Join(root, copied))
	found := map[string]bool{}
	for _, dir := range []string{"agent", "cmd", "informer", "localapi", "pipeline"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			name = filepath.ToSlash(name)
			shows := name != copied && (strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "localapi/statuspage/"))
			ast.Inspect(file, func(n ast.Node) bool {
				if field, ok := n.(*ast.SelectorExpr); ok && shows {
					require.NotContains(t, fields, field.Sel.Name, "%s: the words for a status are in localapi/summary.go", name)
				}
				text, ok := n.(*ast.BasicLit)
				if !ok || text.Kind != token.STRING || strings.HasPrefix(text.Value, "`") {
					return true // a raw string is a help text, or a tag
				}
				for _, w := range words {
					if strings.Contains(text.Value, w.word) {
						require.Equal(t, w.file, name, "%q is worded in %s alone", w.word, w.file)
						found[w.word] = true
					}
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
	for _, w := range words {
		require.True(t, found[w.word], "%q is not in %s", w.word, w.file)
	}
}

// statusNames adds the names of the fields and methods of a type, and of the types in it.
func statusNames(typ reflect.Type, names map[string]bool) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		statusNames(typ.Elem(), names)
	case reflect.Struct:
		for method := range typ.Methods() {
			names[method.Name] = true
		}
		for field := range typ.Fields() {
			if field.IsExported() {
				names[field.Name] = true
				statusNames(field.Type, names)
			}
		}
	}
}
