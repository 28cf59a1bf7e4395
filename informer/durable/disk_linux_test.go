package durable_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapcache/snapcache/informer/durable"
	"github.com/snapcache/snapcache/store/bolt"
)

// mount mounts an empty disk at dir, as large as size, and unmounts it after the test.
func mount(t *testing.T, dir, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root has to mount a file system")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// fill fills the disk of dir, and leaves left bytes.
func fill(t *testing.T, dir string, left int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "full"))
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	info, err := f.Stat()
	require.NoError(t, err)
	require.NoError(t, f.Truncate(info.Size()-left))
	require.NoError(t, f.Close())
}

func readOnly(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
}

// badDisks are directories on disks that take no writes.
var badDisks = []badDir{
	{"read-only", func(t *testing.T, dir string) {
		mount(t, dir, "64m")
		readOnly(t, dir)
	}, "read-only", syscall.EROFS},
	{"read-only, with a file", func(t *testing.T, dir string) {
		mount(t, dir, "64m")
		create(t, dir)
		readOnly(t, dir)
	}, "read-only", syscall.EROFS},
	{"read-only, with a corrupt file", func(t *testing.T, dir string) {
		mount(t, dir, "64m")
		put(t, dir, "meta", "format", "")
		readOnly(t, dir)
	}, "read-only", syscall.EROFS},
	{"full", func(t *testing.T, dir string) {
		mount(t, dir, "64m")
		fill(t, dir, 0)
	}, "full", syscall.ENOSPC},
	{"full, with a file", func(t *testing.T, dir string) {
		mount(t, dir, "64m")
		create(t, dir)
		fill(t, dir, 0)
	}, "full", bolt.ErrNoRoom},
	{"almost full", func(t *testing.T, dir string) {
		mount(t, dir, "64m")
		create(t, dir)
		fill(t, dir, durable.MinFreeBytes-64<<10)
	}, "full", bolt.ErrNoRoom},
}

func TestOpen_Disks(t *testing.T)          { openEach(t, badDisks) }
func TestOpen_Required_Disks(t *testing.T) { requireEach(t, badDisks) }

// TestOpen_OtherUser: a directory of another user is one that can't be used.
func TestOpen_OtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root has to become another user")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	p := newProgram(t, dir)
	p.Required = true
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setfsuid(65534); err != nil {
			failed <- err
			return
		}
		_, err := durable.Open(t.Context(), p.Options)
		failed <- err
	}()
	err := <-failed
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "fsGroup")
}

// noise returns n bytes of text that can't be compressed much.
func noise(n int) string {
	b := make([]byte, n*3/4)
	_, _ = rand.Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

// TestRun_DiskFills: while a program runs, its disk fills up. Handlers and readers get each change, and
// Run reports at the end that the newest are not on disk. The next start is in memory, and once there is
// room it continues from where the file is.
func TestRun_DiskFills(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "64m")
	s := newSource(100, func(int) string { return noise(1000) })
	p := newProgram(t, dir)
	inf, seen, stop := s.run(t, p.open(t))
	waitSynced(t, inf)
	for range 100 {
		<-seen
	}
	fill(t, dir, 0)
	const changes = 300
	for i := range changes {
		m := configMap(i%100, 1000+i, noise(10_000))
		s.events.Modify(&m)
		<-seen
	}
	require.Len(t, inf.GetStore().List(), 100)
	require.ErrorIs(t, stop(), syscall.ENOSPC)

	p = newProgram(t, dir)
	c := p.open(t)
	_, labels, _ := p.gauge(t, "snapcache_store_durable")
	require.Contains(t, labels, "reason=full")
	require.NoError(t, c.Close())

	require.NoError(t, os.Remove(filepath.Join(dir, "full")))
	p = newProgram(t, dir)
	inf, _, stop = s.run(t, p.open(t))
	waitSynced(t, inf)
	require.Len(t, inf.GetStore().List(), 100)
	require.NoError(t, stop())
	require.Empty(t, p.log.warnings())
}

// TestRun_ListFillsDisk: a first list that does not fit on the disk does not sync, and the next start is in
// memory.
func TestRun_ListFillsDisk(t *testing.T) {
	t.Parallel() // with waits, as the informer tries to store for a while before it ends
	dir := t.TempDir()
	mount(t, dir, "20m")
	s := newSource(3000, func(int) string { return noise(10_000) })
	p := newProgram(t, dir)
	inf, _, stop := s.run(t, p.open(t))
	require.Eventually(t, func() bool {
		refusing, _, _ := p.gauge(t, "snapcache_store_refusing")
		return refusing == 1
	}, patience, pollEvery)
	require.False(t, inf.HasSynced())
	require.NoError(t, stop())

	p = newProgram(t, dir)
	inf, _, stop = s.run(t, p.open(t))
	_, labels, _ := p.gauge(t, "snapcache_store_durable")
	require.Contains(t, labels, "reason=full")
	waitSynced(t, inf)
	require.Len(t, inf.GetStore().List(), len(s.objects))
	require.NoError(t, stop())
}

// The disk limits the file, and no quota of an agent: the file is mapped for far more than a million pods.
func TestOpen_NoQuota(t *testing.T) {
	dir := t.TempDir()
	c := newProgram(t, dir).open(t)
	defer func() { require.NoError(t, c.Close()) }()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	var mapped uint64
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, dir) {
			var from, to uint64
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			require.NoError(t, err)
			mapped += to - from
		}
	}
	if strconv.IntSize == 64 {
		require.GreaterOrEqual(t, mapped, uint64(64<<30))
	} else {
		require.NotZero(t, mapped)
	}
}
