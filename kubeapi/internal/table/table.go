package table

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/snapcache/snapcache/store"
)

// Printer prints the objects of one resource. It is safe for concurrent use.
type Printer struct {
	resource schema.GroupResource
	columns  []metav1.TableColumnDefinition
	print    printFunc
}

// printFunc returns the cells of an object, from its JSON, and the row's conditions.
type printFunc func(raw []byte, now clock) ([]any, []metav1.TableRowCondition, error)

// For returns the printer of a collection's resource: that of the built-in kind, or of the columns of
// its CustomResourceDefinition, or else one with name and time of creation. A custom resource without
// columns has name and age.
func For(info store.Info, d store.Description) *Printer {
	p := &Printer{resource: schema.GroupResource{Group: info.Group, Resource: info.Resource}}
	builtin, known := printers[p.resource.String()]
	switch {
	case d.Custom:
		columns, custom := newCustomPrinter(d.Columns)
		p.columns, p.print = columns, custom.print
	case known:
		p.columns, p.print = builtinColumns()[p.resource.String()], builtin
	default:
		p.columns, p.print = defaultColumns, rowOf((*object).defaultCells)
	}
	return p
}

// Columns returns the definitions of the columns, which the caller must not change.
func (p *Printer) Columns() []metav1.TableColumnDefinition { return p.columns }

// Row returns the cells of an object, from its JSON, and the row's conditions. Ages are those at the
// time now.
func (p *Printer) Row(raw []byte, now time.Time) (cells []any, conditions []metav1.TableRowCondition, err error) {
	cells, conditions, err = p.print(raw, clock{now})
	if err != nil {
		return nil, nil, fmt.Errorf("table row of %s: %w", p.resource, err)
	}
	return cells, conditions, nil
}

// rowOf returns the printFunc of a kind from the function that returns the cells of its objects.
func rowOf[O any](cells func(*O, clock) []any) printFunc {
	return func(raw []byte, now clock) ([]any, []metav1.TableRowCondition, error) {
		var o O
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, nil, err
		}
		return cells(&o, now), nil, nil
	}
}
