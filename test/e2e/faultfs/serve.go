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

// serveEnv in the environment of a process makes it serve file systems; its value is the
// seed of their random choices.
const serveEnv = "SNAPCACHE_FAULTFS_SEED"

// Serve serves a file system until its test ends, if the process was started for that, and
// says whether it was. It has to be the first thing in TestMain of each package that uses
// [New].
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
	// What ends the test is told by the end of the connection, and not by a signal that is
	// for all of a terminal or of a job.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ended := make(chan struct{})
	go s.ServeConn(stdio{sync.OnceFunc(func() { close(ended) })})
	<-ended // the other end is closed, at the latest by the end of its process
	for _, m := range d.mounts {
		_ = syscall.Unmount(m.path, syscall.MNT_DETACH) // it may be unmounted already
	}
	return true
}

// stdio is the connection with the test. ended is called when there is no more to read: a
// call that waits for something is then waited for by nobody.
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

// pipe is the test's end of it.
type pipe struct {
	io.Reader
	io.WriteCloser
}

// spawn starts a process that serves.
func spawn(seed uint64) (*exec.Cmd, *rpc.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveEnv+"="+strconv.FormatUint(seed, 10))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what kills the test's group leaves it time to unmount
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

// daemon is what a process serves: one disk, after a cut the next.
type daemon struct {
	disk   *disk
	mounts []mounted
}

type mounted struct {
	path   string
	server *fuse.Server
}

// calls are what a test may ask, as package rpc wants them.
type calls struct{ d *daemon }

// Mount mounts the disk.
func (c *calls) Mount(path string, _ *struct{}) error {
	s, err := fuse.NewServer(newServer(c.d.disk), path, &fuse.MountOptions{
		FsName: "faultfs", Name: "faultfs", DirectMountStrict: true, AllowOther: true,
		DisableXAttrs: true, DisableReadDirPlus: true, SyncRead: true,
	})
	if err != nil {
		return err
	}
	go s.Serve()
	c.d.mounts = append(c.d.mounts, mounted{path, s})
	return s.WaitMount()
}

// Unmount unmounts the newest mount, and with it what the kernel has in its cache. Files
// that are open stay so; reading them goes on.
func (c *calls) Unmount(struct{}, *struct{}) error {
	if len(c.d.mounts) == 0 {
		return errors.New("nothing is mounted")
	}
	last := len(c.d.mounts) - 1
	m := c.d.mounts[last]
	c.d.mounts = c.d.mounts[:last]
	return syscall.Unmount(m.path, syscall.MNT_DETACH)
}

// Cut ends the power of the disk; the next mount is of what it left.
func (c *calls) Cut(choice Choice, _ *struct{}) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	c.d.disk = d.cut(choice)
	return nil
}

// SetFaults changes what is wrong.
func (c *calls) SetFaults(f Faults, _ *struct{}) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = f
	d.counts = Counts{Used: d.counts.Used}
	return nil
}

// Counts returns how many operations there were.
func (c *calls) Counts(_ struct{}, counts *Counts) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	*counts = d.tally()
	return nil
}

// Replacement is what [Disk.Replace] does.
type Replacement struct{ Old, With []byte }

// Replace replaces bytes in all files.
func (c *calls) Replace(r Replacement, count *int) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	*count = d.replace(r.Old, r.With)
	return nil
}

// AwaitRoom returns when no more than so many bytes are in use.
func (c *calls) AwaitRoom(used int64, _ *struct{}) error {
	d := c.d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.counts.Used > used {
		d.freed.Wait()
	}
	return nil
}
