package table_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
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
					require.Contains(t, []any{cells[i], later[i]}, cell, "cell %d of %s", i, want.Object.Raw)
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

func TestRowErrors(t *testing.T) {
	t.Parallel()
	pods := store.Info{Version: "v1", Resource: "pods", Kind: "Pod"}
	widgets := store.Info{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget"}
	for _, test := range []struct {
		name, raw, want string
		info            store.Info
		description     store.Description
	}{
		{name: "no JSON", info: pods, raw: `{"metadata":`, want: "table row of pods: "},
		{name: "no object", info: widgets, description: store.Description{Custom: true}, raw: `[]`, want: "table row of widgets.example.com: "},
		{name: "kind without printer", info: widgets, raw: `today`, want: "table row of widgets.example.com: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cells, conditions, err := table.For(test.info, test.description).Row([]byte(test.raw), time.Now())
			require.ErrorContains(t, err, test.want)
			require.Nil(t, cells)
			require.Nil(t, conditions)
		})
	}
}

// TestConcurrentRows prints with one printer in several goroutines, for the race detector. A path with a
// range changes when it is evaluated the first time; as at a kube-apiserver, its cell is null afterwards.
func TestConcurrentRows(t *testing.T) {
	t.Parallel()
	columns := []store.Column{
		{Name: "Size", Type: "integer", JSONPath: ".size"},
		{Name: "Parts", Type: "string", JSONPath: ".metadata.name}{range .parts[*]}{.name}{end"},
	}
	raw := []byte(`{"metadata":{"name":"w"},"parts":[{"name":"a"},{"name":"b"}],"size":3}`)
	for range 100 {
		printer := table.For(store.Info{Resource: "widgets"}, store.Description{Custom: true, Columns: columns})
		var group errgroup.Group
		for range 4 {
			group.Go(func() error {
				cells, _, err := printer.Row(raw, time.Now())
				if err == nil && !slices.Equal(cells[:2], []any{"w", int64(3)}) {
					err = fmt.Errorf("cells %v", cells)
				}
				return err
			})
		}
		require.NoError(t, group.Wait())
	}
}
