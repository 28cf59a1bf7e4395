package quota

import (
	"math"
	"runtime/debug"
)

const (
	// scaleBytes is the memory that the limits of a node are made for.
	scaleBytes = 128 << 20

	// maxScale keeps products with the limits within 32 bits.
	maxScale = 256
)

// Scale returns the factor for the limits of a node: 1, or more if this process was given more memory than
// a node's (GOMEMLIMIT), as a hub of thousands of agents is.
func Scale() int { return scale(debug.SetMemoryLimit(-1)) }

func scale(memory int64) int {
	if memory == math.MaxInt64 { // no limit was set
		return 1
	}
	return int(min(max(1, memory/scaleBytes), maxScale))
}
