// Package restore decides whether stored data can be used: the file when it is opened, and each
// collection before its checkpoint is used. Each decision is a verdict that is logged, counted and
// shown.
//
// A file that can't be used never stops the agent and is never deleted: it is renamed to a name
// with the time and the reason. The content of the newest good snapshot takes its place, or an
// empty file if there is none.
package restore
