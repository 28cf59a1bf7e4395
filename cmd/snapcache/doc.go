// Command snapcache is a durable Kubernetes watch cache for edge nodes.
//
// Each command has a file and no logic of its own: it reads flags, calls the packages, and prints.
// source.go decides whether the agent or its file answers.
package main
