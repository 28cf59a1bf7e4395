// Package peer is the protocol between the driver of the benchmarks and the processes that it
// measures. A peer is one cache of one kind in its own process. Its flags name what to cache and
// the marks that prove that it is cached. It writes an [Event] per line to standard output, and
// reads a command per line from standard input.
package peer
