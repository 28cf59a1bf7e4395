package controlplane

import "syscall"

// ownGroup puts the child into a process group of its own, so that the terminal's Ctrl-C does not
// reach it, and makes the kernel kill it when the thread that started it ends.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
