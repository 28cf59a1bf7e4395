package house_test

import (
	"flag"
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

var writeDifferences = flag.Bool("differences", false, "write the list of differences from a kube-apiserver to "+apiPage)

const apiPage = "docs/kubernetes-api.md"

// TestDifferences checks that the page about the Kubernetes API lists the differences from a
// kube-apiserver that test/kubeapi allows. -differences writes the list.
func TestDifferences(t *testing.T) {
	want := strings.Join(allowedDifferences(t), "")
	file := filepath.Join(root, apiPage)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(raw), "-args -differences -->\n\n")
	require.True(t, found, "%s has no comment before the list", apiPage)
	before := string(raw)[:len(raw)-len(rest)]
	list, after, found := strings.Cut(rest, "\n\n")
	require.True(t, found)
	if *writeDifferences {
		require.NoError(t, os.WriteFile(file, []byte(before+want+"\n"+after), 0o644))
		return
	}
	require.Equal(t, want, list+"\n", "run this test with -args -differences")
}

// allowedDifferences returns the items of the list in test/kubeapi, whose module this one can't
// import, without their reasons.
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
			rows = append(rows, wrapped(texts["what"]))
		}
		return true
	})
	require.NotEmpty(t, rows)
	return rows
}

// wrapped returns an item of a Markdown list, in lines of at most 100 columns.
func wrapped(text string) string {
	var item strings.Builder
	line := "-"
	for word := range strings.FieldsSeq(text) {
		if len([]rune(line))+1+len([]rune(word)) > 100 {
			item.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	return item.String() + line + "\n"
}
