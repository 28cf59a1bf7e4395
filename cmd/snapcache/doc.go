// Command snapcache is a durable Kubernetes watch cache for edge nodes.
//
// One file a command, and no logic of its own: the commands read flags, ask the
// packages, and print. What answers the commands that read, the agent or its
// file, is decided in source.go.
//
// Exit codes are a contract: 0 ok, 1 failure, 2 usage or configuration, 3 never
// synced or an index that is being built, 4 damaged, 5 too old, 6 drift.
package main
