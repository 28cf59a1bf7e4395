package faultfs

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// serveEnv is an environment variable that makes a process serve a file system; its value is the
// seed of the random choices.
const serveEnv = "SNAPCACHE_FAULTFS_SEED"

// Serve serves a file system until the test ends, if the process was started for that, and reports
// whether it was. Each package that uses [New] must call it first in TestMain.
func Serve() bool {
	seed, ok := os.LookupEnv(serveEnv)
	if !ok {
		return false
	}
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faultfs:", err)
		return true
	}
	d := &daemon{disk: newDisk(n)}
	s := rpc.NewServer()
	if err := s.RegisterName("Disk", &calls{d}); err != nil {
		fmt.Fprintln(os.Stderr, "faultfs:", err)
		return true
	}
	// The test's end shows as the end of the connection. A signal may be for all of a terminal or a
	// job, so it is ignored.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ended := make(chan struct{})
	go s.ServeConn(stdio{sync.OnceFunc(func() { close(ended) })})
	<-ended // the other end is closed, at the latest by the exit of its process
	for _, m := range d.mounts {
		_ = syscall.Unmount(m.path, syscall.MNT_DETACH) // may be unmounted already
	}
	return true
}

// stdio is the connection to the test. Reading EOF calls ended: no one waits for a blocked call any
// longer.
type stdio struct{ ended func() }

func (c stdio) Read(p []byte) (int, error) {
	n, err := os.Stdin.Read(p)
	if err != nil {
		c.ended()
	}
	return n, err
}

func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { return nil }

// pipe is the test's end of the connection.
type pipe struct {
	io.Reader
	io.WriteCloser
}

// spawn starts a serving process.
func spawn(seed uint64) (*exec.Cmd, *rpc.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveEnv+"="+strconv.FormatUint(seed, 10))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to the test's process group must not keep it from unmounting
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	return cmd, rpc.NewClient(pipe{out, in}), nil
}

// daemon is the state of a serving process: one disk, replaced by its successor at a power cut.
type daemon struct {
	disk   *disk
	mounts []mounted
}

type mounted struct {
	path   string
	server *fuse.Server
}

// calls are the methods that a test can call through net/rpc.
type calls struct{ d *daemon }

// Mount mounts the disk.
func (c *calls) Mount(path string, _ *struct{}) error {
	s, err := fuse.NewServer(newServer(c.d.disk), path, &fuse.MountOptions{
		FsName: "faultfs", Name: "faultfs", DirectMountStrict: true, AllowOther: true,
		DisableXAttrs: true, DisableReadDirPlus: true, SyncRead: true,
		MaxReadAhead: 1, // less than a page: a read that is to fail must not have been read before
	})
	if err != nil {
		return err
	}
	go s.Serve()
	c.d.mounts = append(c.d.mounts, mounted{path, s})
	return s.WaitMount()
}

// Unmount detaches the newest mount, and with it the kernel's cache. Open handles stay readable.
func (c *calls) Unmount(struct{}, *struct{}) error {
	if len(c.d.mounts) == 0 {
		return errors.New("nothing is mounted")
	}
	last := len(c.d.mounts) - 1
	m := c.d.mounts[last]
	c.d.mounts = c.d.mounts[:last]
	return syscall.Unmount(m.path, syscall.MNT_DETACH)
}

// Cut cuts the power of the disk; the next mount shows the state that is left.
func (c *calls) Cut(choice Choice, _ *struct{}) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	c.d.disk = d.cut(choice)
	return nil
}

// SetFaults replaces the faults.
func (c *calls) SetFaults(f Faults, _ *struct{}) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = f
	d.counts = Counts{Used: d.counts.Used}
	return nil
}

// Counts returns the counts since the last SetFaults.
func (c *calls) Counts(_ struct{}, counts *Counts) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	*counts = d.tally()
	return nil
}

// Replacement holds the arguments of [Disk.Replace].
type Replacement struct{ Old, With []byte }

// Replace overwrites bytes in all files.
func (c *calls) Replace(r Replacement, count *int) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	*count = d.replace(r.Old, r.With)
	return nil
}

// AwaitRoom blocks until at most this many bytes are in use.
func (c *calls) AwaitRoom(used int64, _ *struct{}) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.counts.Used > used {
		d.freed.Wait()
	}
	return nil
}
