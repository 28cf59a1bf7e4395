package kubectl

import (
	"fmt"
	"io"
	"strings"

	"github.com/liggitt/tabwriter"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

// customColumns prints objects with the columns of -o custom-columns=NAME:PATH,...
type customColumns struct {
	heads []string // empty if they were printed
	paths []*jsonpath.JSONPath
}

func newCustomColumns(spec string, noHeaders bool) (*customColumns, error) {
	c := &customColumns{}
	for column := range strings.SplitSeq(spec, ",") {
		head, expression, ok := strings.Cut(column, ":")
		if !ok {
			return nil, fmt.Errorf("unexpected custom-columns spec: %s, expected <header>:<json-path-expr>", column)
		}
		path, _, err := jsonPath(expression)
		if err != nil {
			return nil, err
		}
		c.paths = append(c.paths, path)
		if !noHeaders {
			c.heads = append(c.heads, head)
		}
	}
	return c, nil
}

// head prints the headers, once.
func (c *customColumns) head(w *tabwriter.Writer) error {
	if len(c.heads) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, strings.Join(c.heads, "\t"))
	c.heads = nil
	return err
}

// PrintObj implements [printers.ResourcePrinter].
func (c *customColumns) PrintObj(o runtime.Object, w io.Writer) error {
	tabs, ok := w.(*tabwriter.Writer)
	if !ok {
		tabs = printers.GetNewTabWriter(w)
		defer func() { _ = tabs.Flush() }() // the writer keeps its error
	}
	if err := c.head(tabs); err != nil {
		return err
	}
	cells := make([]string, len(c.paths))
	for i, path := range c.paths {
		results, err := path.FindResults(o.(*unstructured.Unstructured).Object)
		if err != nil {
			return err
		}
		var values []string
		if len(results) == 0 || len(results[0]) == 0 {
			values = append(values, "<none>")
		}
		for _, found := range results {
			for _, v := range found {
				values = append(values, printers.EscapeTerminal(fmt.Sprint(v.Interface())))
			}
		}
		cells[i] = strings.Join(values, ",")
	}
	_, err := fmt.Fprintln(tabs, strings.Join(cells, "\t"))
	return err
}
