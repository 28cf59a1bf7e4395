package controlplane

import "syscall"

// ownGroup keeps the terminal's Ctrl-C from the child, which is to be stopped
// in order, and lets the kernel kill it when the thread that started it dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
