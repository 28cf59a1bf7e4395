package kubectl

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/jsonpath"
)

// relaxed matches .metadata.name, metadata.name and {.metadata.name}.
var relaxed = regexp.MustCompile(`^\{\.?([^{}]+)\}$|^\.?([^{}]+)$`)

// jsonPath parses an expression of --sort-by or of a custom column.
func jsonPath(expression string) (*jsonpath.JSONPath, string, error) {
	path := expression
	if path != "" {
		match := relaxed.FindStringSubmatch(path)
		if match == nil {
			return nil, "", fmt.Errorf("unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'")
		}
		path = "{." + match[1] + match[2] + "}"
	}
	p := jsonpath.New("path").AllowMissingKeys(true)
	return p, path, p.Parse(path)
}

// sorter finds the order of objects by a field. Objects without it come first.
type sorter struct {
	field *jsonpath.JSONPath
	path  string
	keys  []sortKey
	found bool // one object has the field
}

// sortKey is the value of the field: none, a number or a text, in this order. A whole number, and a text
// with a number and a unit, such as 100Mi, has a quantity too.
type sortKey struct {
	rank     int // of the type: 0, 1 or 2
	number   float64
	text     string
	quantity *quantity.Quantity
}

func newSorter(by string) (*sorter, error) {
	field, path, err := jsonPath(by)
	if err != nil {
		return nil, fmt.Errorf("sorting error: %w", err)
	}
	return &sorter{field: field, path: path}, nil
}

func (s *sorter) add(o map[string]any) error {
	results, err := s.field.FindResults(o)
	if err != nil {
		return err
	}
	var key sortKey
	if len(results) > 0 && len(results[0]) > 0 {
		s.found = true
		switch v := results[0][0].Interface().(type) {
		case nil:
		case int64:
			key = sortKey{rank: 1, number: float64(v), quantity: quantity.NewQuantity(v, quantity.DecimalSI)}
		case float64:
			key = sortKey{rank: 1, number: v}
		case string:
			key = sortKey{rank: 2, text: v}
			if q, err := quantity.ParseQuantity(v); err == nil {
				key.quantity = &q
			}
		default:
			return fmt.Errorf("--sort-by: field %s is an unsortable type: %T", s.path, v)
		}
	}
	s.keys = append(s.keys, key)
	return nil
}

func (s *sorter) addRow(raw []byte) error {
	var row struct {
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(raw, &row); err != nil {
		return err
	}
	o, err := decode(row.Object)
	if err != nil {
		return err
	}
	return s.add(o.Object)
}

// order returns the positions of the objects, in order.
func (s *sorter) order() ([]int, error) {
	if !s.found && len(s.keys) > 0 {
		return nil, fmt.Errorf("couldn't find any field with path %q in the list of objects", s.path)
	}
	order := make([]int, len(s.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return s.keys[a].compare(s.keys[b]) })
	return order, nil
}

func (a sortKey) compare(b sortKey) int {
	if a.rank == b.rank && a.quantity != nil && b.quantity != nil {
		return a.quantity.Cmp(*b.quantity)
	}
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.number, b.number), cmp.Compare(a.text, b.text))
}

func inOrder[T any](items []T, order []int) []T {
	sorted := make([]T, len(items))
	for i, from := range order {
		sorted[i] = items[from]
	}
	return sorted
}
