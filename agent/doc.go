// Package agent wires configuration, collections, local API and lifecycle
// together into the service that runs on a node.
//
// The order of a start is the promise of the whole: the database is opened and
// judged, the local API answers from it, systemd is told that the agent is
// ready, and only then is the network touched. From there on each collection
// runs on its own: one that is forbidden or gone holds up no other.
//
// A reload compares what the configuration wants with what there is, and touches only what
// differs.
//
// A stop is the same backwards: no more events are taken, what is queued is
// applied, the database is closed.
package agent
