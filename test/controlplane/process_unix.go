//go:build unix

package controlplane

import "syscall"

// hold halts the process until release.
func (p *process) hold() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) release() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
