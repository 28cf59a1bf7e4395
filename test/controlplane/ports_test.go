//go:build unix

package controlplane

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestReservePort reserves ports concurrently, and one of them again.
func TestReservePort(t *testing.T) {
	t.Parallel()
	const count = 20
	reserved := make(chan port, count)
	for range count {
		go func() {
			p, err := reservePort(0)
			if err != nil {
				t.Error(err)
			}
			reserved <- p
		}()
	}
	seen := make(map[int]bool)
	var last port
	for range count {
		p := <-reserved
		defer p.release()
		if seen[p.number] {
			t.Errorf("port %d was given out twice", p.number)
		}
		seen[p.number] = true
		last = p
	}
	if _, err := reservePort(last.number); !errors.Is(err, ErrLocked) {
		t.Errorf("reserved port %d again: %v", last.number, err)
	}
	// A reserved port is free to listen on.
	l, err := net.Listen("tcp", last.address())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	// A child that was just forked still has the lock's file open.
	child, err := syscall.Dup(int(last.lock.(fileLock).Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(child) }()
	last.release()
	again, err := reservePort(last.number)
	if err != nil {
		t.Fatal(err)
	}
	again.release()
}
