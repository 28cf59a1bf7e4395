// Package restore decides what to do with what is on disk: for the file on
// opening, and for each collection before its checkpoint is used. Each decision
// is a verdict that is printed, counted and shown.
//
// A file that can't be used never stops the agent and is never deleted: it is
// set aside under a name that says when and why. What the newest good snapshot has
// takes its place, or an empty one where there is none.
package restore
