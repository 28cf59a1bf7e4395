//go:build !linux

package controlplane

import "syscall"

// ownGroup is empty where a child cannot be tied to its parent: a killed test
// leaves its processes behind there.
func ownGroup() *syscall.SysProcAttr { return nil }
