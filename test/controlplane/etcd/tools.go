//go:build tools

// Package etcd pins the etcd server that the test control plane runs, and the
// etcdutl that turns its online snapshots into data directories. It is a module
// of its own because etcd's dependencies and kubernetes' differ.
package etcd

import (
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
