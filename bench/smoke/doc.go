// Package smoke has the test that the benchmarks work: that every peer starts, reads what
// the server has and is measured. It asserts nothing about how fast anything is.
package smoke
