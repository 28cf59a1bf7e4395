package faultfs

import (
	"errors"
	"net/rpc"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// callPatience is the timeout of a call, far longer than any call takes.
const callPatience = 2 * time.Minute

// Disk is a disk with one file system, mounted at Dir.
type Disk struct {
	// Dir is the mount point.
	Dir string

	t      *testing.T
	cmd    *exec.Cmd
	client *rpc.Client
	closed bool
}

// New returns an empty disk without faults, which is unmounted when the test ends. seed seeds its
// random choices. If mounting fails, New skips the test.
func New(t *testing.T, seed uint64) *Disk {
	t.Helper()
	switch {
	case runtime.GOOS != "linux":
		t.Skip("no file system with faults: FUSE is mounted on Linux only")
	case os.Geteuid() != 0:
		t.Skip("no file system with faults: mounting it needs root")
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skip("no file system with faults:", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir, which contains the test's name: the path of a socket would get too long.
	dir, err := os.MkdirTemp("", "faultfs-")
	if err != nil {
		t.Fatal(err)
	}
	d := &Disk{Dir: dir, t: t}
	if d.cmd, d.client, err = spawn(seed); err != nil {
		t.Fatal(errors.Join(err, os.Remove(dir)))
	}
	t.Cleanup(d.Close)
	d.call("Mount", dir, &struct{}{})
	return d
}

func (d *Disk) call(method string, args, reply any) {
	d.t.Helper()
	call := d.client.Go("Disk."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			d.t.Fatalf("faultfs: %s: %v", method, call.Error)
		}
	case <-time.After(callPatience):
		d.t.Fatalf("faultfs: %s: no answer", method)
	}
}

// Close unmounts the disk and discards its content. A second call does nothing.
func (d *Disk) Close() {
	if d.closed {
		return
	}
	d.closed = true
	if err := d.client.Close(); err != nil {
		d.t.Error(err)
	}
	if err := d.cmd.Wait(); err != nil {
		d.t.Error(err)
	}
	if err := os.Remove(d.Dir); err != nil { // fails if something is still mounted
		d.t.Error(err)
	}
}

// Set replaces the faults of the disk and resets the counts.
func (d *Disk) Set(f Faults) {
	d.t.Helper()
	d.call("SetFaults", f, &struct{}{})
}

// Counts returns the counts since the last [Disk.Set].
func (d *Disk) Counts() (c Counts) {
	d.t.Helper()
	d.call("Counts", struct{}{}, &c)
	return c
}

// Cut cuts the power. Open handles can still read the old state; changes fail with EIO.
// [Disk.Restart] mounts the state that is left.
func (d *Disk) Cut(c Choice) {
	d.t.Helper()
	d.call("Cut", c, &struct{}{})
}

// Restart unmounts the disk and mounts it again, so that the kernel's cache of it is empty.
func (d *Disk) Restart() {
	d.t.Helper()
	d.call("Unmount", struct{}{}, &struct{}{})
	d.call("Mount", d.Dir, &struct{}{})
}

// Replace overwrites old with the equally long with in all files, durably, and returns the number
// of replacements. No file may be open.
func (d *Disk) Replace(old, with string) (count int) {
	d.t.Helper()
	d.call("Replace", Replacement{[]byte(old), []byte(with)}, &count)
	return count
}

// AwaitRoom waits until at most this many bytes are in use. The kernel reports a file's last close
// with a delay.
func (d *Disk) AwaitRoom(used int64) {
	d.t.Helper()
	d.call("AwaitRoom", used, &struct{}{})
}
