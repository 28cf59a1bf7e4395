// Package report writes the results of a run of the benchmarks: pages of Markdown, charts, and
// whether the targets were reached.
package report
