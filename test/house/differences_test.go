package house_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var writeDifferences = flag.Bool("differences", false, "write the table of the differences from a kube-apiserver to "+apiPage)

const apiPage = "docs/kubernetes-api.md"

// TestDifferences checks that the page about the Kubernetes API lists the differences from a
// kube-apiserver that test/kubeapi allows. -differences writes the table.
func TestDifferences(t *testing.T) {
	want := "| difference | reason |\n|---|---|\n" + strings.Join(allowedDifferences(t), "")
	file := filepath.Join(root, apiPage)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(raw), "-args -differences -->\n\n")
	require.True(t, found, "%s has no comment before the table", apiPage)
	before := string(raw)[:len(raw)-len(rest)]
	table, after, found := strings.Cut(rest, "\n\n")
	require.True(t, found)
	if *writeDifferences {
		require.NoError(t, os.WriteFile(file, []byte(before+want+"\n"+after), 0o644))
		return
	}
	require.Equal(t, want, table+"\n", "run this test with -args -differences")
}

// allowedDifferences returns the rows of the table in test/kubeapi, whose module this one can't
// import.
func allowedDifferences(t *testing.T) (rows []string) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "test/kubeapi/differences_test.go"), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		texts := map[string]string{}
		for _, element := range literal.Elts {
			field, ok := element.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			name, _ := field.Key.(*ast.Ident)
			value, _ := field.Value.(*ast.BasicLit)
			if name != nil && value != nil && value.Kind == token.STRING {
				texts[name.Name], err = strconv.Unquote(value.Value)
				require.NoError(t, err)
			}
		}
		if texts["what"] != "" {
			require.NotEmpty(t, texts["why"], texts["what"])
			rows = append(rows, fmt.Sprintf("| %s | %s |\n", texts["what"], texts["why"]))
		}
		return true
	})
	require.NotEmpty(t, rows)
	return rows
}
