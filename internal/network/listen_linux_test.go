package network

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestListen changes the network of a namespace of its own, and reads what the kernel reports.
func TestListen(t *testing.T) {
	isolated := make(chan error)
	go func() {
		defer close(isolated)
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and its namespace too
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			isolated <- err
			return
		}
		came, stop, err := listen()
		if err != nil {
			isolated <- err
			return
		}
		defer stop()
		select {
		case <-came:
			isolated <- errors.New("a change before there was one")
		default:
		}
		if err := raise("lo"); err != nil {
			isolated <- err
			return
		}
		<-came // its addresses and routes
	}()
	err, failed := <-isolated
	if errors.Is(err, unix.EPERM) {
		t.Skip("a network namespace of its own needs root")
	}
	require.False(t, failed, "%v", err)
}

// raise activates an interface.
func raise(name string) (err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

func TestIsNew(t *testing.T) {
	message := func(kind byte) []byte { return []byte{16, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} }
	require.True(t, isNew(message(unix.RTM_NEWADDR)))
	require.True(t, isNew(append(message(unix.RTM_DELROUTE), message(unix.RTM_NEWROUTE)...)))
	require.False(t, isNew(message(unix.RTM_DELADDR)))
	require.False(t, isNew(nil))
}
