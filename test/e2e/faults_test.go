package e2e

import (
	"flag"
	"math/rand/v2"
	"testing"
)

// Tests of faults are named TestFault… and have two lengths: the short one runs with the others,
// the full one with -faults.full, see docs/reliability.md.
var (
	full = flag.Bool("faults.full", false, "run the fault tests at full length: some hours")
	seed = flag.Uint64("faults.seed", 0, "what the fault tests' random choices begin with; 0 for a new one each time")
)

// times returns the number of repetitions of a fault test.
func times(short, long int) int {
	if *full {
		return long
	}
	return short
}

// spread calls try with each stride-th number below total, beginning with first. Then,
// as long as nothing returns true, it continues with the numbers between, until there are no more.
func spread(first, stride, total int, try func(at int), nothing func() bool) {
	for round := 0; round == 0 || round < stride && nothing(); round++ {
		for at := (first + round) % stride; at < total; at += stride {
			try(at)
		}
	}
}

// random returns a source of random choices, and logs its seed.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("the random choices are those of -faults.seed=%d", n)
	return rand.New(rand.NewPCG(n, 0)) //nolint:gosec // choices of a test
}
