package measure

import (
	"bytes"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// CPU agrees with the kernel's other counters.
func TestCPU(t *testing.T) {
	before, err := CPU(os.Getpid())
	require.NoError(t, err)
	for until := time.Now().Add(50 * time.Millisecond); time.Now().Before(until); {
	}
	after, err := CPU(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, after, before)
	var usage unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	require.InDelta(t, float64(usage.Utime.Nano()+usage.Stime.Nano())/1e9, after.Seconds(), 0.1+0.1*after.Seconds())
	_, err = CPU(1 << 22) // above the largest pid of Linux
	require.Error(t, err)
}

func TestMemory(t *testing.T) {
	before, err := ReadMemory(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, before.File)
	const more = 64 << 20
	b := bytes.Repeat([]byte{1}, more)
	after, err := ReadMemory(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, after.Anon, before.Anon+more*3/4)
	require.GreaterOrEqual(t, after.Peak, after.Anon)
	require.EqualValues(t, 1, b[more-1]) // keeps the memory in use until here
}

func TestWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	before, err := Written(os.Getpid())
	require.NoError(t, err)
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<30))
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	size, err := FileBytes(path)
	require.NoError(t, err)
	require.InDelta(t, 1<<20, size, 1<<18, "the hole takes no space")
	after, err := Written(os.Getpid())
	require.NoError(t, err)
	if size > 0 && after == before {
		t.Skip("the folder for temporary files is in memory")
	}
	require.GreaterOrEqual(t, after-before, int64(1<<20))
}

// Network counts bytes while connections are open, and after they are closed.
func TestNetwork(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	const asked, answered = 100, 3_000_000
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if _, err := io.ReadFull(c, make([]byte, asked)); err == nil {
					_, _ = c.Write(make([]byte, answered))
				}
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	n, err := NewNetwork(server.Addr().String())
	require.NoError(t, err)
	for i := range 2 {
		c, err := net.Dial("tcp", n.Address())
		require.NoError(t, err)
		_, err = c.Write(make([]byte, asked))
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, answered))
		require.NoError(t, err)
		got, err := n.Traffic()
		require.NoError(t, err)
		require.InDelta(t, (i+1)*answered, got.Received, float64(i+1), "while the connection is open")
		require.Equal(t, i+1, got.Connections)
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return len(n.open) == 0
		}, time.Minute, time.Millisecond)
		got, err = n.Traffic()
		require.NoError(t, err)
		require.InDelta(t, (i+1)*answered, got.Received, float64(i+1), "after the connection is closed; its end counts as a byte")
		require.InDelta(t, (i+1)*asked, got.Sent, float64(2*(i+1)), "its beginning and end count as a byte each")
	}
	c, err := net.Dial("tcp", n.Address())
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool {
		got, err := n.Traffic()
		return err == nil && got.Connections == 3
	}, time.Minute, time.Millisecond)
	require.NoError(t, n.Close())
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err, "the connection is closed")
	require.NoError(t, server.Close())
	wg.Wait()
}

func TestStatistics(t *testing.T) {
	require.Equal(t, Spread{}, SpreadOf(nil))
	require.Equal(t, Spread{Median: 2, Low: 1, High: 9, Count: 3}, SpreadOf([]float64{9, 1, 2}))
	require.Equal(t, Spread{Median: 3, Low: 1, High: 9, Count: 4}, SpreadOf([]float64{9, 1, 4, 2}))
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	require.InDelta(t, 50, Percentile(hundred, 50), 0)
	require.InDelta(t, 99, Percentile(hundred, 99), 0)
	require.InDelta(t, 7, Percentile([]float64{7}, 99), 0)
	require.Zero(t, Percentile(nil, 50))
	require.InDelta(t, 1.5, Exponent(map[float64]float64{10: 5 * math.Pow(10, 1.5), 100: 5 * math.Pow(100, 1.5), 1000: 5 * math.Pow(1000, 1.5)}), 1e-9)
	require.InDelta(t, 0, Exponent(map[float64]float64{10: 7, 1000: 7}), 1e-9)
	require.True(t, math.IsNaN(Exponent(map[float64]float64{10: 7})))
	require.True(t, math.IsNaN(Exponent(map[float64]float64{10: 7, 20: 0})))
}
