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

// callPatience is how long a call may take: far longer than it takes.
const callPatience = 2 * time.Minute

// Disk is a disk with one file system, mounted at Dir.
type Disk struct {
	// Dir is where it is mounted.
	Dir string

	t      *testing.T
	cmd    *exec.Cmd
	client *rpc.Client
	closed bool
}

// New returns an honest, empty disk, which is unmounted when the test ends. seed is
// that of its random choices. Where it can't be mounted the test is skipped.
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
	// Not t.TempDir: with the name of the test a socket's path in it gets too long.
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

// Close unmounts the disk, which is gone then. Closing twice does nothing.
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
	if err := os.Remove(d.Dir); err != nil { // fails where something is still mounted
		d.t.Error(err)
	}
}

// Set changes what is wrong with the disk, and begins to count anew.
func (d *Disk) Set(f Faults) {
	d.t.Helper()
	d.call("SetFaults", f, &struct{}{})
}

// Counts returns how many operations there were since the faults were set.
func (d *Disk) Counts() (c Counts) {
	d.t.Helper()
	d.call("Counts", struct{}{}, &c)
	return c
}

// Cut is a power cut. Who has files of the disk open can still read them, as they were, and
// write no more. [Disk.Restart] brings what is left.
func (d *Disk) Cut(c Choice) {
	d.t.Helper()
	d.call("Cut", c, &struct{}{})
}

// Restart unmounts and mounts the disk: the kernel forgets what it had of it.
func (d *Disk) Restart() {
	d.t.Helper()
	d.call("Unmount", struct{}{}, &struct{}{})
	d.call("Mount", d.Dir, &struct{}{})
}

// Replace changes bytes in all files, durably, and returns how often. with has as many.
// Nobody may have a file open.
func (d *Disk) Replace(old, with string) (count int) {
	d.t.Helper()
	d.call("Replace", Replacement{[]byte(old), []byte(with)}, &count)
	return count
}

// AwaitRoom waits until no more than so many bytes are in use. The kernel tells of the end
// of a file's last handle some time after it.
func (d *Disk) AwaitRoom(used int64) {
	d.t.Helper()
	d.call("AwaitRoom", used, &struct{}{})
}
