// Package report writes what a run of the benchmarks measured: a page of Markdown,
// charts, and which targets were reached.
package report
