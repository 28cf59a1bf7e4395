package kubectl

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/liggitt/tabwriter"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

// newPrinter returns the printer of a format for an object, a whole list or a watch event.
func newPrinter(o Options) (printers.ResourcePrinter, error) {
	format, template, _ := strings.Cut(o.Output, "=")
	if name, isFile := strings.CutSuffix(format, "-file"); isFile {
		text, err := os.ReadFile(template)
		if err != nil {
			return nil, fmt.Errorf("read the template: %w", err)
		}
		format, template = name, string(text)
	}
	switch format {
	case "json":
		return withoutManagedFields(&printers.JSONPrinter{}, o), nil
	case "yaml":
		return withoutManagedFields(&printers.YAMLPrinter{}, o), nil
	case "kyaml":
		return withoutManagedFields(&printers.KYAMLPrinter{}, o), nil
	case "name":
		return &printers.NamePrinter{ShortOutput: true}, nil
	case "jsonpath", "jsonpath-as-json":
		p, err := printers.NewJSONPathPrinter(template)
		if err != nil {
			return nil, fmt.Errorf("error parsing jsonpath %s, %w", template, err)
		}
		p.AllowMissingKeys(true)
		p.EnableJSONOutput(format == "jsonpath-as-json")
		return jsonPathPrinter{p, template}, nil
	case "go-template":
		p, err := printers.NewGoTemplatePrinter([]byte(template))
		if err != nil {
			return nil, fmt.Errorf("error parsing template %s, %w", template, err)
		}
		p.AllowMissingKeys(true)
		return p, nil
	}
	return newCustomColumns(template, o.NoHeaders)
}

func withoutManagedFields(p printers.ResourcePrinter, o Options) printers.ResourcePrinter {
	if o.ShowManagedFields {
		return p
	}
	return &printers.OmitManagedFieldsPrinter{Delegate: p}
}

// jsonPathPrinter shortens the errors of its delegate, which contain the object.
type jsonPathPrinter struct {
	*printers.JSONPathPrinter
	template string
}

func (p jsonPathPrinter) PrintObj(o runtime.Object, w io.Writer) error {
	content, ok := o.(runtime.Unstructured)
	if !ok {
		return p.JSONPathPrinter.PrintObj(o, w)
	}
	if err := p.Execute(w, content.UnstructuredContent()); err != nil {
		return fmt.Errorf("error executing jsonpath %q: %w", p.template, err)
	}
	return nil
}

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
