// Command snapcache is a durable Kubernetes watch cache for edge nodes.
//
// Each command has a file and no logic of its own: it reads flags, calls the packages, and prints.
// source.go decides whether the agent or its file answers.
//
// Exit codes are a contract: 0 ok, 1 failure, 2 usage or configuration, 3 never synced,
// 4 corrupt, 5 too old, 6 drift.
package main
