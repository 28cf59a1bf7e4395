//go:build !linux

package controlplane

import "syscall"

// ownGroup returns nil: on this system a child can't be tied to its parent, so a killed test leaves
// its processes behind.
func ownGroup() *syscall.SysProcAttr { return nil }
