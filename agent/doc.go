// Package agent wires configuration, collections, local API and lifecycle
// together into the service that runs on a node.
//
// A start does not depend on the server: the database is opened and judged, and the local API
// listens, before the server is contacted. Unless systemd is to be notified only once all
// collections are caught up, the agent is ready then. From there on each collection runs on its
// own: one that is forbidden or gone blocks no other.
//
// A reload compares the new configuration with the one in force and with the collections, and
// applies only the differences.
//
// A stop takes no more events, applies the queued changes, and then closes the database.
package agent
