//go:build tools

// Package kine pins kine, the datastore of k3s, which answers as etcd from SQLite. It is a module of its own for its
// many dependencies.
package kine

import _ "github.com/k3s-io/kine"
