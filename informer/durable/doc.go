// Package durable opens the cache of a program on controller-runtime or client-go in a directory, with
// settings that fit any program.
//
// The invariant: the cache is never the reason that a program does not run. If the directory can't be
// used, [Open] logs why, and the program runs as without this package: its informers are client-go's.
// [Options].Required makes that an error instead.
package durable
