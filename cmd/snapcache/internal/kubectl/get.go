package kubectl

import (
	"context"
	"fmt"
	"io"

	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

// Get prints what the arguments name, as "kubectl get" does. Messages and the server's warnings go
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
