package faultfs

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if Serve() {
		return
	}
	os.Exit(m.Run())
}

func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

func syncDir(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// restart cuts the power and mounts what is left.
func (d *Disk) restart(c Choice) {
	d.Cut(c)
	d.Restart()
}

func TestSyncedDataIsKept(t *testing.T) {
	for _, c := range []Choice{Mixed, DropAll, KeepAll, TearAll} {
		d := New(t, 1)
		path := filepath.Join(d.Dir, "a", "f")
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		_, err = f.Write(fill('x', 3*pageSize+5))
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		syncDir(t, filepath.Dir(path))
		syncDir(t, d.Dir)
		_, err = f.WriteAt(fill('y', pageSize), pageSize)
		require.NoError(t, err)
		require.Equal(t, 1, d.Counts().Pending)
		d.Cut(c)
		_, err = f.WriteAt([]byte("z"), 0)
		require.ErrorIs(t, err, syscall.EIO, "a write after the power cut")
		require.NoError(t, f.Close())
		d.Restart()
		got := read(t, path)
		require.Len(t, got, 3*pageSize+5)
		require.Equal(t, fill('x', pageSize), got[:pageSize])
		require.Equal(t, fill('x', pageSize+5), got[2*pageSize:])
		middle := got[pageSize : 2*pageSize]
		switch c {
		case DropAll:
			require.Equal(t, fill('x', pageSize), middle)
		case KeepAll:
			require.Equal(t, fill('y', pageSize), middle)
		case TearAll:
			require.NotEqual(t, fill('x', pageSize), middle)
			require.Zero(t, bytes.Count(middle, []byte("y"))%sectorSize)
		case Mixed:
			require.Zero(t, bytes.Count(middle, []byte("y"))%sectorSize)
		}
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
}

func TestUnsyncedNamesAreLost(t *testing.T) {
	d := New(t, 1)
	a, b := filepath.Join(d.Dir, "a"), filepath.Join(d.Dir, "b")
	require.NoError(t, os.WriteFile(a, []byte("1"), 0o600))
	d.restart(DropAll)
	require.NoFileExists(t, a)
	require.NoError(t, os.WriteFile(a, []byte("1"), 0o600))
	syncDir(t, d.Dir)
	d.restart(DropAll)
	require.Empty(t, read(t, a), "its name is durable, its content is not")
	require.NoError(t, os.WriteFile(b, []byte("2"), 0o600))
	require.NoError(t, os.Rename(b, a))
	require.Equal(t, "2", string(read(t, a)))
	require.NoFileExists(t, b)
	d.restart(DropAll)
	require.Empty(t, read(t, a))
	require.NoError(t, os.Remove(a))
	d.restart(DropAll)
	require.Empty(t, read(t, a))
	require.NoError(t, os.Remove(a))
	d.restart(KeepAll)
	require.NoFileExists(t, a)
}

func TestSyncReportsFalseSuccess(t *testing.T) {
	d := New(t, 1)
	path := filepath.Join(d.Dir, "f")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	syncDir(t, d.Dir)
	d.Set(Faults{Lies: 100})
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	require.Equal(t, 1, d.Counts().Lies)
	d.restart(DropAll)
	require.Empty(t, read(t, path))
}

func TestDiskFull(t *testing.T) {
	d := New(t, 1)
	path := filepath.Join(d.Dir, "f")
	d.Set(Faults{Space: 4 * pageSize})
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.WriteAt(fill('x', 3*pageSize), 0)
	require.NoError(t, err)
	_, err = f.WriteAt(fill('x', 2*pageSize), 3*pageSize)
	require.ErrorIs(t, err, syscall.ENOSPC)
	_, err = f.WriteAt(fill('y', pageSize), 0)
	require.NoError(t, err, "a full disk allows overwrites")
	var fs syscall.Statfs_t
	require.NoError(t, syscall.Statfs(d.Dir, &fs))
	require.EqualValues(t, 1, fs.Bavail)
	for range 20 { // the kernel reports a close with a delay
		require.NoError(t, f.Close())
		require.NoError(t, os.Remove(path))
		d.AwaitRoom(0)
		f, err = os.Create(path)
		require.NoError(t, err)
		_, err = f.Write(fill('x', 4*pageSize))
		require.NoError(t, err)
	}
	require.NoError(t, f.Truncate(pageSize))
	require.EqualValues(t, pageSize, d.Counts().Used)
	d.Set(Faults{NoSpace: Window{Skip: 1, Count: 1}})
	for _, want := range []error{nil, syscall.ENOSPC, nil} {
		_, err = f.WriteAt([]byte("x"), 0)
		require.ErrorIs(t, err, want)
	}
	require.NoError(t, f.Close())
}

func TestInjectedErrors(t *testing.T) {
	d := New(t, 1)
	path := filepath.Join(d.Dir, "f")
	require.NoError(t, os.WriteFile(path, fill('x', 2*pageSize), 0o600))
	d.Restart() // empties the kernel's cache
	d.Set(Faults{BadFrom: pageSize, BadTo: pageSize + 1, Sync: Window{Skip: 1, Count: 1}, Write: Always})
	_, err := os.ReadFile(path)
	require.ErrorIs(t, err, syscall.EIO)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	_, err = f.Write([]byte("y"))
	require.ErrorIs(t, err, syscall.EIO)
	d.Set(Faults{})
	require.NoError(t, f.Close())
	require.Equal(t, fill('x', 2*pageSize), read(t, path))
}

// A mapping shows what is written through a handle, which bbolt relies on.
func TestMapping(t *testing.T) {
	d := New(t, 1)
	f, err := os.Create(filepath.Join(d.Dir, "f"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(8*pageSize))
	m, err := syscall.Mmap(int(f.Fd()), 0, 8*pageSize, syscall.PROT_READ, syscall.MAP_SHARED)
	require.NoError(t, err)
	for i := range 8 {
		require.Zero(t, m[i*pageSize])
		_, err = f.WriteAt(fill(byte(i+1), pageSize), int64(i)*pageSize)
		require.NoError(t, err)
		require.Equal(t, fill(byte(i+1), pageSize), m[i*pageSize:(i+1)*pageSize])
	}
	require.NoError(t, syscall.Munmap(m))
	require.NoError(t, f.Close())
}

// A killed test leaves nothing mounted, not even while a call blocks.
func TestUnmountAfterKill(t *testing.T) {
	d := New(t, 1)
	f, err := os.Create(filepath.Join(d.Dir, "f"))
	require.NoError(t, err)
	_, err = f.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	waiting := d.client.Go("Disk.AwaitRoom", int64(0), &struct{}{}, nil)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "x", string(read(t, f.Name())), "the disk works after SIGTERM")
	d.Close()
	<-waiting.Done
	require.Error(t, waiting.Error)
	require.NoDirExists(t, d.Dir)
}

func TestReplace(t *testing.T) {
	d := New(t, 1)
	path := filepath.Join(d.Dir, "f")
	require.NoError(t, os.WriteFile(path, append(fill('x', pageSize-2), "hello hello"...), 0o600))
	d.Restart()
	require.Equal(t, 2, d.Replace("hello", "world"))
	require.Equal(t, "world world", string(read(t, path)[pageSize-2:]))
}

func TestPowerCutAfterChanges(t *testing.T) {
	d := New(t, 1)
	path := filepath.Join(d.Dir, "f")
	d.Set(Faults{PowerFor: 3})
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	require.ErrorIs(t, os.Remove(path), syscall.EIO)
	require.NoError(t, f.Close())
	require.Equal(t, "x", string(read(t, path)))
	d.restart(KeepAll)
	require.Equal(t, "x", string(read(t, path)))
	require.NoError(t, os.Remove(path))
}
