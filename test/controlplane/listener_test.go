//go:build unix

package controlplane

import (
	"context"
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCloseListener: the address of a closed listener is free again, although processes are started all the time.
func TestCloseListener(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var starts sync.WaitGroup
	defer starts.Wait()
	defer cancel()
	for range 4 {
		starts.Go(func() {
			for ctx.Err() == nil {
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	for range 2000 {
		require.NoError(t, CloseListener(l))
		l, err = net.Listen("tcp", l.Addr().String())
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
}
