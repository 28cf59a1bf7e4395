// Package restore decides whether a file can be used when it is opened. The decision is a verdict that is
// logged, counted and shown.
//
// A file that can't be used never stops the agent and is never deleted: it is renamed to a name
// with the time and the reason. The content of the newest good snapshot takes its place, or an
// empty file if there is none.
package restore
