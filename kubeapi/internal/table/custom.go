package table

import (
	"bytes"
	"cmp"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/snapcache/snapcache/store"
)

// ageColumn is the age in a custom resource without columns.
var ageColumn = store.Column{
	Name: "Age", Type: "date", Description: creationDescription, JSONPath: ".metadata.creationTimestamp",
}

// customPrinter prints custom resources by the columns of their CustomResourceDefinition.
type customPrinter struct {
	columns []store.Column

	mu    sync.Mutex // guards paths: one with a range changes while it is evaluated
	paths []*jsonpath.JSONPath
}

// newCustomPrinter returns the definitions of the columns of a custom resource, and its printer. A path
// that can't be parsed ends the columns, as at a kube-apiserver.
func newCustomPrinter(columns []store.Column) ([]metav1.TableColumnDefinition, *customPrinter) {
	if len(columns) == 0 {
		columns = []store.Column{ageColumn}
	}
	definitions := []metav1.TableColumnDefinition{nameColumn}
	p := &customPrinter{columns: columns}
	for _, c := range columns {
		path := jsonpath.New(c.Name).AllowMissingKeys(true)
		if err := path.Parse("{" + c.JSONPath + "}"); err != nil {
			break
		}
		p.paths = append(p.paths, path)
		definitions = append(definitions, metav1.TableColumnDefinition{
			Name: c.Name, Type: c.Type, Format: c.Format, Priority: c.Priority,
			Description: cmp.Or(c.Description, "Custom resource definition column (in JSONPath format): "+c.JSONPath),
		})
	}
	return definitions, p
}

func (p *customPrinter) cells(raw []byte, now time.Time) ([]any, error) {
	var o unstructured.Unstructured
	if err := json.Unmarshal(raw, &o.Object); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cells := []any{o.GetName()}
	for i := range p.paths {
		cells = append(cells, p.cell(i, o.Object, now))
	}
	return cells, nil
}

// cell returns the first value of a column's path, or nil if there is none or it has another type. A
// string column takes any value.
func (p *customPrinter) cell(i int, content map[string]any, now time.Time) any {
	results, err := p.paths[i].FindResults(content)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil
	}
	value := results[0][0].Interface()
	switch p.columns[i].Type {
	case "string":
		var text bytes.Buffer
		if err := p.paths[i].PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}); err != nil {
			return nil
		}
		return text.String()
	case "integer":
		switch n := value.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		}
	case "number":
		switch n := value.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "date":
		if text, ok := value.(string); ok {
			var t metav1.Time
			if err := t.UnmarshalQueryParameter(text); err != nil {
				return "<invalid>"
			}
			return since(t.Time, now)
		}
	}
	return nil
}
