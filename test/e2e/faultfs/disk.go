package faultfs

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
)

// Faults are the faults of a disk. The zero value is a disk without faults and of unlimited size.
// Operations are counted from the call that set the faults.
type Faults struct {
	// Space is the capacity in bytes of pages, over all files; 0 is unlimited. A write beyond it
	// fails with ENOSPC.
	Space int64

	// NoSpace selects the writes that fail with ENOSPC; Write, Read and Sync the operations that
	// fail with EIO. The sync of a directory counts too.
	NoSpace, Write, Read, Sync Window

	// BadFrom and BadTo delimit the byte range of each file in which reads fail with EIO.
	BadFrom, BadTo int64

	// PowerFor is the number of changes until the power fails: writes, syncs, and changes of names
	// and lengths. 0 is unlimited. A test still has to call [Disk.Cut] afterwards.
	PowerFor int

	// Lies is the percentage of syncs that do nothing and report success.
	Lies int
}

// Window selects operations by number: Count of them after the first Skip.
type Window struct{ Skip, Count int }

// Always selects all operations.
var Always = Window{Count: 1 << 30}

func (w Window) has(n int) bool { return n >= w.Skip && n-w.Skip < w.Count }

// Counts are the operations since the faults were set.
type Counts struct {
	Writes, Reads, Syncs int
	Changes              int   // counted by PowerFor
	Failed               int   // operations that failed
	Lies                 int   // syncs that did nothing and reported success
	Used                 int64 // bytes of pages of files that have a name or an open handle
	Pending              int   // pages that are not durable
}

// disk is the state of a file system. mu guards all of it, the inodes included.
type disk struct {
	mu     sync.Mutex
	random *rand.Rand
	root   *inode
	next   uint64
	inodes map[uint64]*inode // by number; an inode stays here after its last name is gone
	faults Faults
	counts Counts
	off    bool // the power is cut: changes fail with EIO

	freed *sync.Cond // signalled at each release
}

func newDisk(seed uint64) *disk {
	d := &disk{random: rand.New(rand.NewPCG(seed, 1)), next: 2} //nolint:gosec // choices of a test
	d.freed = sync.NewCond(&d.mu)
	d.root = newInode(1, true, 0o755)
	d.root.links = 1
	d.inodes = map[uint64]*inode{1: d.root}
	return d
}

func (d *disk) make(dir bool, mode uint32) *inode {
	n := newInode(d.next, dir, mode)
	d.next++
	d.inodes[n.id] = n
	return n
}

// link gives n the name in parent, and replaces the file that had it. A non-empty from is the old
// name, which is removed in the same move.
func (d *disk) link(parent *inode, name string, n *inode, from string) {
	if old := parent.names[name]; old != nil && old != n {
		d.unlinked(old)
	}
	if from != "" {
		delete(parent.names, from)
	} else {
		n.links++
	}
	parent.names[name] = n
	parent.moves = append(parent.moves, move{remove: from, add: name, what: n})
}

func (d *disk) unlink(parent *inode, name string) {
	n := parent.names[name]
	delete(parent.names, name)
	parent.moves = append(parent.moves, move{remove: name})
	d.unlinked(n)
}

func (d *disk) unlinked(n *inode) {
	n.links--
	d.release(n)
}

// release frees the pages' space if the file has neither name nor handle. The inode stays: after a
// power cut its name may be back.
func (d *disk) release(n *inode) {
	if n.links == 0 && n.handles == 0 && !n.dir {
		d.counts.Used -= int64(len(n.now.pages)) * pageSize
	}
	d.freed.Broadcast()
}

// powered counts a change and reports whether there is power for it.
func (d *disk) powered() bool {
	if d.faults.PowerFor > 0 && d.counts.Changes >= d.faults.PowerFor {
		d.off = true
	}
	d.counts.Changes++
	return !d.off
}

func (d *disk) write(n *inode, off int64, data []byte) syscall.Errno {
	i := d.counts.Writes
	d.counts.Writes++
	switch {
	case !d.powered(), d.faults.Write.has(i):
		d.counts.Failed++
		return syscall.EIO
	case d.faults.NoSpace.has(i):
		d.counts.Failed++
		return syscall.ENOSPC
	}
	var more int64
	for at := off / pageSize; at*pageSize < off+int64(len(data)); at++ {
		if n.now.pages[at] == nil {
			more += pageSize
		}
	}
	if d.faults.Space > 0 && more > 0 && d.counts.Used+more > d.faults.Space {
		d.counts.Failed++
		return syscall.ENOSPC
	}
	d.counts.Used += more
	n.write(off, data)
	return 0
}

func (d *disk) read(n *inode, off int64, buf []byte) (int, syscall.Errno) {
	i := d.counts.Reads
	d.counts.Reads++
	if d.faults.Read.has(i) || off < d.faults.BadTo && off+int64(len(buf)) > d.faults.BadFrom {
		d.counts.Failed++
		return 0, syscall.EIO
	}
	return n.read(off, buf), 0
}

func (d *disk) truncate(n *inode, size int64) syscall.Errno {
	if !d.powered() {
		return syscall.EIO
	}
	before := len(n.now.pages)
	n.truncate(size)
	d.counts.Used -= int64(before-len(n.now.pages)) * pageSize
	return 0
}

func (d *disk) sync(n *inode) syscall.Errno {
	i := d.counts.Syncs
	d.counts.Syncs++
	switch {
	case !d.powered():
		d.counts.Failed++
		return syscall.EIO
	case d.faults.Sync.has(i):
		d.counts.Failed++
		n.fail(d.random)
		return syscall.EIO
	case d.faults.Lies > 0 && d.random.IntN(100) < d.faults.Lies:
		d.counts.Lies++
		return 0
	}
	n.sync()
	return 0
}

// cut turns the power off: changes fail from now on, and open handles can still read. It
// returns the disk as the next start finds it.
func (d *disk) cut(c Choice) *disk {
	d.off = true
	after := newDisk(d.random.Uint64())
	moved := map[*inode]*inode{}
	var move func(n *inode) *inode
	move = func(n *inode) *inode {
		if to := moved[n]; to != nil {
			to.links++
			return to
		}
		n.cut(d.random, c)
		to := after.make(n.dir, n.mode)
		to.links = 1
		moved[n] = to
		if n.dir {
			for _, name := range slices.Sorted(maps.Keys(n.stableNames)) { // sorted: the same seed makes the same choices
				to.names[name] = move(n.stableNames[name])
			}
			to.sync()
		} else {
			to.now, to.stable = n.stable.clone(), n.stable.clone()
			after.counts.Used += int64(len(to.now.pages)) * pageSize
		}
		return to
	}
	root := move(d.root)
	delete(after.inodes, root.id)
	root.id = 1
	after.root = root
	after.inodes[1] = root
	return after
}

// replace overwrites old with the equally long with in all files, and returns the number of
// replacements.
func (d *disk) replace(old, with []byte) (count int) {
	for _, n := range d.inodes {
		if n.dir {
			continue
		}
		raw := make([]byte, n.now.size)
		n.read(0, raw)
		for i := 0; ; {
			at := bytes.Index(raw[i:], old)
			if at < 0 {
				break
			}
			n.write(int64(i+at), with)
			count++
			i += at + len(old)
		}
		n.sync()
	}
	return count
}

func (d *disk) tally() Counts {
	c := d.counts
	for _, n := range d.inodes {
		c.Pending += len(n.versions)
	}
	return c
}
