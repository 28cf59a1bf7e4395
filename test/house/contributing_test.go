package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	mdLink = regexp.MustCompile(`\[[^]]*]\([^)]*\)`)
	mdCode = regexp.MustCompile("`([^`]+)`")
)

// TestContributingPlaces checks that each directory, file and name in the second column of "Where to
// change what" in CONTRIBUTING.md exists. A path is relative to the root, or to the directory named
// before it in the row; a name is declared in that directory's package.
func TestContributingPlaces(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "## Where to change what")
	require.True(t, found)
	table, _, found = strings.Cut(table, "\n## ")
	require.True(t, found)
	declared := map[string]map[string]bool{}
	named := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			continue
		}
		dir := ""
		for _, m := range mdCode.FindAllStringSubmatch(mdLink.ReplaceAllString(cells[1], ""), -1) {
			switch place := m[1]; {
			case strings.HasPrefix(place, "go test "):
			case isDir(place):
				dir = place
			case isFile(place):
				dir = path.Dir(place)
			case isFile(path.Join(dir, place)):
			default:
				if declared[dir] == nil {
					declared[dir] = declarations(t, dir)
				}
				named++
				if !declared[dir][place] {
					t.Errorf("CONTRIBUTING.md, row %q: there is no %q in %s", strings.TrimPrefix(cells[0], "| "), place, dir)
				}
			}
		}
	}
	require.Greater(t, named, 20, "CONTRIBUTING.md names hardly a function")
}

func isDir(name string) bool {
	info, err := os.Stat(filepath.Join(root, name))
	return err == nil && info.IsDir()
}

func isFile(name string) bool {
	info, err := os.Stat(filepath.Join(root, name))
	return err == nil && info.Mode().IsRegular()
}

// declarations returns the names that the Go files of a directory declare, with methods as Type.Method.
func declarations(t *testing.T, dir string) map[string]bool {
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[receiver(d)+d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						names[spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							names[name.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}

// receiver returns the type of a method with a dot behind it, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	x := d.Recv.List[0].Type
	if pointer, ok := x.(*ast.StarExpr); ok {
		x = pointer.X
	}
	if generic, ok := x.(*ast.IndexExpr); ok {
		x = generic.X
	}
	if name, ok := x.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}
