// Package smoke tests that the benchmarks work: every peer starts, reads the server's objects and
// is measured. It asserts nothing about speed.
package smoke
