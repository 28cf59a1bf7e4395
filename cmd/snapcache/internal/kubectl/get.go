package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

// Get prints the objects that the arguments name, as "kubectl get" does. Messages and the server's warnings go
// to errOut. An error of type [*Error] is in kubectl's words.
//
// With Options.Watch or WatchOnly it returns when ctx ends or when the server ends the watch. If out
// has a buffer with a Flush method, it is flushed after each event.
func Get(ctx context.Context, cfg *rest.Config, args []string, o Options, out, errOut io.Writer) error {
	if err := o.validate(); err != nil {
		return newError(err)
	}
	c, err := newClient(cfg, o, out, errOut)
	if err != nil {
		return err
	}
	all, err := c.resources(ctx)
	if err != nil {
		return newError(err)
	}
	warnings := rest.NewWarningWriter(errOut, rest.WarningWriterOptions{Deduplicate: true})
	warn := func(text string) { warnings.HandleWarningHeader(299, "", text) }
	t, err := resources{all, warn}.parse(args, o)
	if err != nil {
		return newError(err)
	}
	switch {
	case o.Watch || o.WatchOnly:
		return c.watch(ctx, t)
	case o.isTable():
		return c.printTables(ctx, t)
	case t.single:
		return c.printOne(ctx, t.objects[0])
	default:
		return c.printList(ctx, t)
	}
}

func (c *client) printOne(ctx context.Context, t target) error {
	p, err := newPrinter(c.opts)
	if err != nil {
		return newError(err)
	}
	raw, err := c.get(ctx, t)
	if err != nil || raw == nil {
		return newError(err)
	}
	o, err := decode(object.WithType(raw, t.apiVersion(), t.kind))
	if err != nil {
		return err
	}
	return newError(p.PrintObj(o, c.out))
}

func (c *client) printList(ctx context.Context, t targets) error {
	p, err := newListPrinter(c.opts, c.out)
	if err != nil {
		return newError(err)
	}
	var errs []error
	n := 0
	add := func(raw []byte) error {
		n++
		return p.Add(raw)
	}
	for _, x := range t.objects {
		raw, err := c.get(ctx, x)
		if err == nil && raw != nil {
			err = add(object.WithType(raw, x.apiVersion(), x.kind))
		}
		errs = append(errs, err)
	}
	for _, r := range t.types {
		before := n
		_, err := c.list(ctx, r, func(i item) error { return add(i.raw) })
		if err != nil && n > before {
			return newError(err) // the output stays without its end, so that no reader takes it for complete
		}
		errs = append(errs, err)
	}
	if n > 0 || !c.opts.IgnoreNotFound {
		errs = append(errs, p.End())
	}
	return newError(errs...)
}

func (c *client) noResources(t targets) error {
	namespaced := !c.opts.AllNamespaces
	for _, r := range t.types {
		namespaced = namespaced && r.namespaced
	}
	text := "No resources found\n"
	if namespaced {
		text = fmt.Sprintf("No resources found in %s namespace.\n", c.opts.namespace())
	}
	_, err := io.WriteString(c.errOut, text)
	return err
}

func (c *client) flush() error {
	if b, ok := c.out.(interface{ Flush() error }); ok {
		return b.Flush()
	}
	return nil
}

// Options are the options of kubectl get, with its names.
type Options struct {
	Namespace     string // empty for "default"
	AllNamespaces bool
	LabelSelector string
	FieldSelector string
	SortBy        string // a JSONPath expression

	Output            string // empty for a table
	NoHeaders         bool
	ShowLabels        bool
	ShowKind          bool
	ShowManagedFields bool
	LabelColumns      []string
	IgnoreNotFound    bool

	Watch             bool // print, then watch
	WatchOnly         bool
	OutputWatchEvents bool
}

// Formats are the values of option -o. A value that ends in "=" needs a template after it.
func Formats() []string {
	return []string{"wide", "json", "yaml", "kyaml", "name", columnsFormat + "=", "jsonpath=", "jsonpath-as-json=", "jsonpath-file=", "go-template=", "go-template-file="}
}

const columnsFormat = "custom-columns"

// isTable reports whether the server prints.
func (o Options) isTable() bool { return o.Output == "" || o.Output == "wide" }

// namespace returns the namespace of requests, empty for all.
func (o Options) namespace() string {
	if o.AllNamespaces {
		return ""
	}
	return cmp.Or(o.Namespace, metav1.NamespaceDefault)
}

func (o Options) validate() error {
	format, _, hasTemplate := strings.Cut(o.Output, "=")
	if hasTemplate {
		format += "="
	}
	switch {
	case o.Output != "" && slices.Contains(Formats(), format+"="):
		return fmt.Errorf("output format %q needs a template: -o %s=TEMPLATE", format, format)
	case o.Output != "" && !slices.Contains(Formats(), format):
		return fmt.Errorf("unable to match a printer suitable for the output format %q, allowed formats are: %s", o.Output, strings.Join(Formats(), ","))
	case o.ShowLabels && !o.isTable():
		return fmt.Errorf("--show-labels option cannot be used with %s printer", o.Output)
	case len(o.LabelColumns) > 0 && format == columnsFormat+"=":
		return fmt.Errorf("--label-columns option cannot be used with %s printer", o.Output)
	case o.OutputWatchEvents && !o.Watch && !o.WatchOnly:
		return fmt.Errorf("--output-watch-events option can only be used with --watch or --watch-only")
	}
	return nil
}
