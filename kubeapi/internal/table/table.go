package table

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store"
)

// Printer prints the objects of one resource. It is safe for concurrent use.
type Printer struct {
	resource schema.GroupResource
	columns  []metav1.TableColumnDefinition
	cells    func(object) []any
	custom   *customPrinter // in place of cells
}

// For returns the printer of a collection's resource: that of the built-in kind, or of the columns of
// its CustomResourceDefinition, or else one with name and time of creation. A custom resource without
// columns has name and age.
func For(info store.Info, d store.Description) *Printer {
	p := &Printer{resource: schema.GroupResource{Group: info.Group, Resource: info.Resource}}
	builtin, known := printers[p.resource.String()]
	switch {
	case d.Custom:
		p.columns, p.custom = newCustomPrinter(d.Columns)
	case known:
		p.columns, p.cells = builtinColumns()[p.resource.String()], builtin
	default:
		p.columns, p.cells = defaultColumns, row(name, created)
	}
	return p
}

// Columns returns the definitions of the columns, which the caller must not change.
func (p *Printer) Columns() []metav1.TableColumnDefinition { return p.columns }

// Row returns the cells of an object, from its JSON, and the row's conditions. Ages are those at the
// time now.
func (p *Printer) Row(raw []byte, now time.Time) (cells []any, conditions []metav1.TableRowCondition, err error) {
	switch {
	case p.custom != nil:
		cells, err = p.custom.cells(raw, now)
	case !gjson.ValidBytes(raw):
		err = errors.New("the object is not JSON")
	default:
		o := object{gjson.ParseBytes(raw).Map(), now}
		cells = p.cells(o)
		if p.resource == (schema.GroupResource{Resource: "pods"}) {
			conditions = podConditions(o)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("table row of %s: %w", p.resource, err)
	}
	return cells, conditions, nil
}
