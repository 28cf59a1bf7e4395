package kubectl

import (
	"context"
	"io"

	"github.com/liggitt/tabwriter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// sections writes the tables of several resources, with an empty line between two.
type sections struct {
	w       io.Writer
	written bool
	between bool // an empty line is due
}

func (s *sections) Write(p []byte) (int, error) {
	if len(p) > 0 && s.between {
		if _, err := io.WriteString(s.w, "\n"); err != nil {
			return 0, err
		}
		s.between = false
	}
	s.written = s.written || len(p) > 0
	return s.w.Write(p)
}

type table struct {
	printers.ResourcePrinter
	w *tabwriter.Writer

	columns []metav1.TableColumnDefinition
	rows    []metav1.TableRow // not yet printed
	sorted  *sorter           // nil for the server's order
}

func newTablePrinter(r *resource, o Options, withKind bool) printers.ResourcePrinter {
	return printers.NewTablePrinter(printers.PrintOptions{
		Kind: r.groupKind(), WithKind: withKind || o.ShowKind, WithNamespace: o.AllNamespaces && r.namespaced,
		NoHeaders: o.NoHeaders, Wide: o.Output == "wide", ShowLabels: o.ShowLabels, ColumnLabels: o.LabelColumns,
	})
}

// add adds a row. A server that does not print sends objects; they get name and age.
func (t *table) add(i item) error {
	if !i.isRow {
		o, err := i.object()
		if err != nil {
			return err
		}
		return t.PrintObj(o, t.w)
	}
	row, err := decodeRow(i.raw)
	if err != nil {
		return err
	}
	t.columns, t.rows = i.columns, append(t.rows, row)
	switch {
	case t.sorted != nil:
		return t.sorted.addRow(i.raw)
	case len(t.rows) == pageLimit:
		return t.flush()
	}
	return nil
}

// flush prints the rows so far. Later ones keep the width of the columns.
func (t *table) flush() error {
	rows := t.rows
	t.rows = nil
	if len(rows) == 0 {
		return nil
	}
	if t.sorted != nil && len(rows) > 1 {
		order, err := t.sorted.order()
		if err != nil {
			return err
		}
		rows = inOrder(rows, order)
	}
	return t.PrintObj(&metav1.Table{ColumnDefinitions: t.columns, Rows: rows}, t.w)
}

func (c *client) printTables(ctx context.Context, t targets) error {
	s := &sections{w: c.out}
	w := printers.GetNewTabWriter(s)
	var errs []error
	if len(t.objects) > 0 {
		errs = c.objectTables(ctx, t, s, w)
	}
	for i, r := range t.types {
		tab, err := c.nextTable(r, len(t.types) > 1, i > 0, s, w)
		if err != nil {
			return err
		}
		_, err = c.list(ctx, r, tab.add)
		errs = append(errs, err, tab.flush())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := newError(errs...); err != nil {
		return err
	}
	if !s.written && !c.opts.IgnoreNotFound {
		return c.noResources(t)
	}
	return nil
}

// nextTable ends the table before, and begins the one of a resource.
func (c *client) nextTable(r *resource, withKind, another bool, s *sections, w *tabwriter.Writer) (*table, error) {
	if err := w.Flush(); err != nil {
		return nil, err
	}
	w.SetRememberedWidths(nil)
	s.between = another && s.written && !c.opts.NoHeaders
	t := &table{w: w, ResourcePrinter: newTablePrinter(r, c.opts, withKind)}
	var err error
	if c.opts.SortBy != "" {
		t.sorted, err = newSorter(c.opts.SortBy)
	}
	return t, err
}

// objectTables prints named objects. Objects of one resource that are named one after the other share
// a table.
func (c *client) objectTables(ctx context.Context, t targets, s *sections, w *tabwriter.Writer) (errs []error) {
	type answer struct {
		of  *resource
		raw []byte
	}
	var answers []answer
	withKind := false
	for _, x := range t.objects {
		raw, err := c.get(ctx, x)
		errs = append(errs, err)
		if raw != nil {
			answers = append(answers, answer{x.resource, raw})
			withKind = withKind || x.resource != answers[0].of
		}
	}
	var tab *table
	for i, a := range answers {
		var err error
		if i == 0 || a.of != answers[i-1].of {
			if tab, err = c.nextTable(a.of, withKind, i > 0, s, w); err != nil {
				return append(errs, err)
			}
		}
		errs = append(errs, readOne(a.raw, a.of, tab.add), tab.flush())
	}
	return errs
}
