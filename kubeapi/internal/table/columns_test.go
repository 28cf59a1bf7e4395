package table

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachPrinterHasColumns(t *testing.T) {
	t.Parallel()
	require.Equal(t, slices.Sorted(maps.Keys(builtinColumns())), slices.Sorted(maps.Keys(printers)))
}
