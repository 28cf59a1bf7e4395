// Package collection keeps one configured resource in one namespace scope up to date: from the
// server through the queue into the store.
//
// A [Collection] holds the state, [Supervisors] run one goroutine for each. A [Tracker] counts what
// the goroutine reports, for status and metrics. A [StallDetector] finds the collection whose
// changes do not reach the store. What has to be done to all collections beside that, such as
// comparing them with the server, is in the packages next to this one.
package collection
