package table_test

import (
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/kubeapi/internal/table"
	"github.com/snapcache/snapcache/store"
)

// recordedTable is a kube-apiserver's table of a resource, with whole objects. TestRecordedTables of
// test/e2e writes it.
type recordedTable struct {
	Info        store.Info        `json:"info"`
	Description store.Description `json:"description"`
	Now         time.Time         `json:"now"`
	Table       metav1.Table      `json:"table"`
}

func readTables(t testing.TB) map[string]recordedTable {
	t.Helper()
	f, err := os.Open("testdata/tables.json.gz")
	require.NoError(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	require.NoError(t, err)
	var tables map[string]recordedTable
	require.NoError(t, json.NewDecoder(r).Decode(&tables))
	require.NotEmpty(t, tables)
	return tables
}

// TestBesideServer compares columns, cells and conditions with those of a kube-apiserver for the same
// objects.
func TestBesideServer(t *testing.T) {
	t.Parallel()
	tables := readTables(t)
	for _, id := range slices.Sorted(maps.Keys(tables)) {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			recorded := tables[id]
			printer := table.For(recorded.Info, recorded.Description)
			require.Equal(t, recorded.Table.ColumnDefinitions, printer.Columns())
			require.NotEmpty(t, recorded.Table.Rows)
			for _, want := range recorded.Table.Rows {
				cells, conditions := row(t, printer, want.Object.Raw, recorded.Now)
				require.Equal(t, want.Conditions, conditions, "%s", want.Object.Raw)
				require.Len(t, cells, len(want.Cells), "%s", want.Object.Raw)
				// The server's clock is between this second and the next one.
				later, _ := row(t, printer, want.Object.Raw, recorded.Now.Add(time.Second))
				for i, cell := range want.Cells {
					require.Contains(t, []any{cells[i], later[i]}, cell, "%s of %s", printer.Columns()[i].Name, want.Object.Raw)
				}
			}
		})
	}
}

// row returns cells and conditions as a client decodes them.
func row(t *testing.T, printer *table.Printer, raw []byte, now time.Time) ([]any, []metav1.TableRowCondition) {
	t.Helper()
	cells, conditions, err := printer.Row(raw, now)
	require.NoError(t, err, "%s", raw)
	encoded, err := json.Marshal(cells)
	require.NoError(t, err)
	var decoded []any
	require.NoError(t, json.Unmarshal(encoded, &decoded))
	return decoded, conditions
}
