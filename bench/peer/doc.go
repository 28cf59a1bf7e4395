// Package peer is what the driver of the benchmarks and the processes that it measures
// say to each other. A peer is one cache of one kind in a process of its own. It is told
// by flags what to cache and what will prove that it has it, writes an [Event] a line to
// its standard output, and reads a command a line from its standard input.
package peer
