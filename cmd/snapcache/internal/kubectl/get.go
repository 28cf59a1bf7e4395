package kubectl

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	c, err := newClient(cfg, o, errOut)
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
	g := &getter{client: c, opts: o, out: out, errOut: errOut}
	switch {
	case o.Watch || o.WatchOnly:
		return g.watch(ctx, t)
	case o.isTable():
		return g.printTables(ctx, t)
	case t.single:
		return g.printOne(ctx, t.objects[0])
	default:
		return g.printList(ctx, t)
	}
}

// getter runs one get.
type getter struct {
	client      *client
	opts        Options
	out, errOut io.Writer
}

// get returns the answer to a get of one object, nil for one that is missing and may be.
func (g *getter) get(ctx context.Context, t target) ([]byte, error) {
	raw, err := g.client.get(ctx, t)
	if g.opts.IgnoreNotFound && apierrors.IsNotFound(err) {
		return nil, nil
	}
	return raw, err
}

// printOne prints an object without a list around it.
func (g *getter) printOne(ctx context.Context, t target) error {
	p, err := newPrinter(g.opts)
	if err != nil {
		return newError(err)
	}
	raw, err := g.get(ctx, t)
	if err != nil || raw == nil {
		return newError(err)
	}
	o, err := decode(object.WithType(raw, t.apiVersion(), t.kind))
	if err != nil {
		return err
	}
	return newError(p.PrintObj(o, g.out))
}

// printList prints all targets as one List.
func (g *getter) printList(ctx context.Context, t targets) error {
	p, err := newListPrinter(g.opts, g.out)
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
		raw, err := g.get(ctx, x)
		if err == nil && raw != nil {
			err = add(object.WithType(raw, x.apiVersion(), x.kind))
		}
		errs = append(errs, err)
	}
	for _, r := range t.types {
		before := n
		_, err := g.client.list(ctx, r, func(i item) error { return add(i.raw) })
		if err != nil && n > before {
			return newError(err) // the output stays without its end, so that no reader takes it for complete
		}
		errs = append(errs, err)
	}
	if n > 0 || !g.opts.IgnoreNotFound {
		errs = append(errs, p.End())
	}
	return newError(errs...)
}

// noResources reports that nothing was found.
func (g *getter) noResources(t targets) error {
	namespaced := !g.opts.AllNamespaces
	for _, r := range t.types {
		namespaced = namespaced && r.namespaced
	}
	text := "No resources found\n"
	if namespaced {
		text = fmt.Sprintf("No resources found in %s namespace.\n", g.opts.namespace())
	}
	_, err := io.WriteString(g.errOut, text)
	return err
}

// flush writes what out has in its buffer.
func (g *getter) flush() error {
	if b, ok := g.out.(interface{ Flush() error }); ok {
		return b.Flush()
	}
	return nil
}
