// Package driver runs the benchmarks: a real control plane with many objects, and the
// peers one after the other beside it, each in a process of its own that is measured
// from outside.
//
// What keeps the comparison honest:
//
//   - All peers go through the same network, which counts bytes and changes none.
//   - They take turns within a round, in another order each round.
//   - What proves that a peer is in step is the same for all: it has the last object
//     that was changed, as it was changed. After each measurement its whole content is
//     compared with the server's, and a difference ends the run.
package driver
