// Package collection keeps one configured resource in one namespace scope up to date: from the
// server through the queue into the store.
//
// A [Collection] holds the state, [Supervisors] run one goroutine for each. A [Tracker] counts the
// reports of the goroutine, for status and metrics. A [StallDetector] finds the collection whose
// changes do not reach the store. Other tasks on all collections, such as comparing them with the
// server, are in the packages beside this one.
package collection
