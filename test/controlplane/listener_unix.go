//go:build unix

package controlplane

import (
	"errors"
	"net"
	"syscall"
)

// CloseListener closes a listener so that its address is free at once. A process that is just being started has copies
// of the listeners of this one until its exec, and a copy that listens keeps the address in use.
func CloseListener(l net.Listener) error {
	socket, err := l.(*net.TCPListener).SyscallConn()
	if err == nil {
		err = socket.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) }) // of all copies
	}
	return errors.Join(err, l.Close())
}
