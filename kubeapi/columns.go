package kubeapi

import (
	"fmt"
	"slices"
)

// Table returns the columns that `kubectl get` prints of a collection's objects without -o wide, except for
// the name, and the function that returns an object's cells, from its JSON. Both are nil if the collection
// is not served.
func (s *Server) Table(id string) (columns []string, cells func(raw []byte) ([]string, error)) {
	all, _ := s.catalog.all() // none after an error
	i := slices.IndexFunc(all, func(x *served) bool { return x.info.ID == id })
	if i < 0 {
		return nil, nil
	}
	printer := all[i].printer
	var at []int // of the columns in a row
	for i, column := range printer.Columns() {
		if i > 0 && column.Priority == 0 {
			columns, at = append(columns, column.Name), append(at, i)
		}
	}
	return columns, func(raw []byte) ([]string, error) {
		row, _, err := printer.Row(raw, s.opts.Clock.Now())
		if err != nil {
			return nil, err
		}
		cells := make([]string, len(at))
		for i, from := range at {
			if from < len(row) && row[from] != nil {
				cells[i] = fmt.Sprint(row[from])
			}
		}
		return cells, nil
	}
}
