// Package driver runs the benchmarks: a real control plane with many objects, and the peers one
// after another, each in its own process that is measured from outside.
//
// Rules for a fair comparison:
//
//   - All peers use the same network, which counts bytes and changes none.
//   - They take turns within a round, in another order each round.
//   - A peer is caught up by the same proof: it has the last changed object, in its last
//     version. After each measurement all its content is compared with the server's, and a
//     difference ends the run.
package driver
