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
	for _, recorded := range readTables(f) {
		printers = append(printers, table.For(recorded.Info, recorded.Description))
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
			cells, _, err := p.Row(raw, time.Now())
			if err != nil {
				continue
			}
			require.GreaterOrEqual(t, len(cells), len(p.Columns()), "%s", raw) // for a quirk of ipaddresses
			_, err = json.Marshal(cells)
			require.NoError(t, err)
		}
	})
}
