//go:build !snapcache_stuck

package collection

import (
	"context"

	"github.com/snapcache/snapcache/deltafifo"
)

// popBatch takes a batch from a queue. A build for tests can get stuck here: see
// hang_stuck.go.
func popBatch(ctx context.Context, q *deltafifo.Queue) (deltafifo.Batch, error) {
	return q.PopBatch(ctx)
}

// hang is where that build gets stuck.
func hang() {}
