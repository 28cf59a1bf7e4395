package table_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/kubeapi/internal/table"
	"github.com/snapcache/snapcache/store"
)

// FuzzRow prints any JSON as every kind, and by a column of any path and type: never with a panic, and
// with a cell for each column unless there is an error.
func FuzzRow(f *testing.F) {
	var printers []*table.Printer
	width := map[*table.Printer]int{} // a server's, of which IP addresses have one more than columns
	for _, recorded := range readTables(f) {
		p := table.For(recorded.Info, recorded.Description)
		printers, width[p] = append(printers, p), len(recorded.Table.Rows[0].Cells)
		for _, c := range append(recorded.Description.Columns, store.Column{}) {
			f.Add(recorded.Table.Rows[0].Object.Raw, c.JSONPath, c.Type)
		}
	}
	f.Add([]byte(`{"a":[1,{"b":null}]}`), ".a}{range .a[*]}{.b}{end}{.c", "string")
	f.Add([]byte(`{"a":[1,{"b":null}]}`), ".a}{range .a[*]}{.b", "integer")
	f.Fuzz(func(t *testing.T, raw []byte, path, kind string) {
		column := store.Column{Name: "Fuzz", Type: kind, JSONPath: path}
		custom := table.For(store.Info{}, store.Description{Custom: true, Columns: []store.Column{column}})
		for _, p := range append(printers, custom, custom) {
			want, known := width[p]
			if !known {
				want = len(p.Columns())
			}
			cells, _, err := p.Row(raw, time.Now())
			if err != nil {
				continue
			}
			require.Len(t, cells, want)
			_, err = json.Marshal(cells)
			require.NoError(t, err)
		}
	})
}
