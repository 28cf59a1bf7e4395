package table

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/store"
)

// Printer prints the objects of one resource. It is safe for concurrent use.
type Printer struct{}

// For returns the printer of a collection's resource: that of the built-in kind, or of the columns of
// its CustomResourceDefinition, or else one with name and age.
func For(info store.Info, d store.Description) *Printer { return &Printer{} }

// Columns returns the definitions of the columns.
func (p *Printer) Columns() []metav1.TableColumnDefinition { return nil }

// Row returns the cells of an object, from its JSON, and the row's conditions.
func (p *Printer) Row(raw []byte, now time.Time) (cells []any, conditions []metav1.TableRowCondition, err error) {
	return nil, nil, nil
}
