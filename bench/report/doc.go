// Package report writes the results of a run of the benchmarks: a page of Markdown, charts, and
// whether the targets were reached.
package report
