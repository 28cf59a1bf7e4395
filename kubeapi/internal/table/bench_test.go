package table_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/kubeapi/internal/table"
)

// BenchmarkRow prints the recorded objects of some kinds.
func BenchmarkRow(b *testing.B) {
	tables := readTables(b)
	for _, id := range []string{"pods", "nodes", "events", "deployments.apps", "services", "configmaps"} {
		b.Run(id, func(b *testing.B) {
			recorded := tables[id]
			p := table.For(recorded.Info, recorded.Description)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				rows := recorded.Table.Rows
				_, _, err := p.Row(rows[i%len(rows)].Object.Raw, recorded.Now)
				require.NoError(b, err)
			}
		})
	}
}
