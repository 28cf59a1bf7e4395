package harness

import (
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// DialAs opens connections of another user of this machine, if the test may become it, and of its own otherwise.
func DialAs(t *testing.T, uid int, network, address string, n int) []net.Conn {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if most := int(limit.Cur) - 2000; n > most {
		t.Logf("%d connections instead of %d: this process may not open more files", most, n)
		n = most
	}
	all, done := make([]net.Conn, 0, n), make(chan error)
	go func() {
		if os.Getuid() == 0 {
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			keep := ^uintptr(0)
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
				done <- errno
				return
			}
		}
		for range n {
			c, err := net.DialTimeout(network, address, Patience)
			if err != nil {
				done <- err
				return
			}
			all = append(all, c)
		}
		done <- nil
	}()
	require.NoError(t, <-done)
	return all
}
