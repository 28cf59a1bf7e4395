package network

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenBuffer is larger than any message of the kernel, in bytes.
const listenBuffer = 64 << 10

// listen returns a channel that has a value after the machine got an address or a route. It is closed if
// the kernel reports no more. stop waits for the goroutine that reads.
func listen() (came <-chan struct{}, stop func(), err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, nil, fmt.Errorf("netlink socket: %w", err)
	}
	const groups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("netlink socket: %w", err), unix.Close(fd))
	}
	f, values, ended := os.NewFile(uintptr(fd), "netlink"), make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(values)
		for b := make([]byte, listenBuffer); ; {
			n, err := f.Read(b)
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // which means that messages were lost
				return
			}
			if err != nil || isNew(b[:n]) {
				select {
				case values <- struct{}{}:
				default:
				}
			}
		}
	}()
	return values, func() { _ = f.Close(); <-ended }, nil
}

// isNew reports whether messages of the kernel have an address or a route that is new or changed. A
// removed one makes no server reachable.
func isNew(b []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(b)
	for _, m := range messages {
		if m.Header.Type == unix.RTM_NEWADDR || m.Header.Type == unix.RTM_NEWROUTE {
			return true
		}
	}
	return err != nil
}
