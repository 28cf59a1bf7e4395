package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/liggitt/tabwriter"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
)

// watch prints the present objects, unless only the watch is requested, and then each change.
func (c *client) watch(ctx context.Context, t targets) error {
	one, err := t.one()
	if err != nil {
		return newError(err)
	}
	w := &eventPrinter{client: c, of: one.resource, printer: newTablePrinter(one.resource, c.opts, false), w: c.out}
	if c.opts.isTable() {
		w.tabs = printers.GetNewTabWriter(c.out)
		w.w = w.tabs
	} else if w.printer, err = newPrinter(c.opts); err != nil {
		return newError(err)
	}
	rv := "0"
	if one.object == "" {
		meta, err := c.list(ctx, one.resource, w.existing)
		if err != nil {
			return newError(err)
		}
		rv = meta.ResourceVersion
	} else {
		raw, err := c.get(ctx, one)
		if err != nil || raw == nil {
			return newError(err)
		}
		if err := readOne(raw, w.of, w.existing); err != nil {
			return newError(err)
		}
		w.skip = true // the first event is the same state
	}
	if err := w.flush(); err != nil {
		return err
	}
	err = w.follow(ctx, one, rv)
	if ctx.Err() != nil {
		return nil
	}
	return newError(err)
}

func (t targets) one() (target, error) {
	switch {
	case len(t.types) == 1 && len(t.objects) == 0:
		return target{resource: t.types[0]}, nil
	case len(t.types) == 0 && len(t.objects) == 1:
		return t.objects[0], nil
	case len(t.types) > 1:
		return target{}, errors.New("you may only specify a single resource type")
	}
	return target{}, errors.New("watch is only supported on individual resources and resource collections")
}

// eventPrinter prints the events of a watch.
type eventPrinter struct {
	*client
	of      *resource
	printer printers.ResourcePrinter
	w       io.Writer
	tabs    *tabwriter.Writer // nil if the output is no table
	skip    bool              // the next event is known
}

func (w *eventPrinter) flush() error {
	if w.tabs != nil {
		if err := w.tabs.Flush(); err != nil {
			return err
		}
	}
	return w.client.flush()
}

// existing prints an object that was there before the watch, or its row.
func (w *eventPrinter) existing(i item) error {
	if w.opts.WatchOnly {
		return nil
	}
	return w.print(watch.Added, i)
}

func (w *eventPrinter) print(t watch.EventType, i item) error {
	o, err := i.object()
	if err != nil {
		return err
	}
	if w.opts.OutputWatchEvents {
		o = &metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Object: o}}
	}
	return w.printer.PrintObj(o, w.w)
}

func (w *eventPrinter) follow(ctx context.Context, t target, rv string) error {
	q := w.client.request(t.resource).Param("watch", "true").Param("resourceVersion", rv)
	if t.object != "" {
		q.Param("fieldSelector", "metadata.name="+t.object)
	} else {
		w.client.selecting(q)
	}
	body, err := q.Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // the watch is over
	d := jsontext.NewDecoder(body, jsontext.AllowDuplicateNames(true))
	for {
		var e struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		raw, err := d.ReadValue()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = json.Unmarshal(raw, &e)
		}
		if err != nil {
			return err
		}
		switch e.Type {
		case watch.Bookmark:
			continue
		case watch.Error:
			var status metav1.Status
			if err := json.Unmarshal(e.Object, &status); err != nil {
				return err
			}
			return apierrors.FromObject(&status)
		}
		if w.skip {
			w.skip = false
			continue
		}
		err = readOne(e.Object, w.of, func(i item) error { return w.print(e.Type, i) })
		if err == nil {
			err = w.flush()
		}
		if err != nil {
			return err
		}
	}
}
