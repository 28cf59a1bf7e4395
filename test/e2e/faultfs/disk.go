package faultfs

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
)

// Faults are what is wrong with a disk. The zero value is an honest disk without end.
// Operations are counted from when the faults were set.
type Faults struct {
	// Space is how many bytes of pages fit, in all files together; 0 for no limit. A
	// write past it fails with ENOSPC.
	Space int64

	// NoSpace are the writes that fail with ENOSPC; Write, Read and Sync the
	// operations that fail with EIO. A sync of a directory counts as one, too.
	NoSpace, Write, Read, Sync Window

	// BadFrom and BadTo are the part of each file, in bytes, that reads fail in with EIO.
	BadFrom, BadTo int64

	// PowerFor is how many changes there is power for: writes, syncs and changes of names
	// and lengths. 0 is for ever. Then it is as after [Disk.Cut], which is still to come.
	PowerFor int

	// Lies is how many of a hundred syncs do nothing and say they did.
	Lies int
}

// Window are operations by number: Count of them, behind the first Skip.
type Window struct{ Skip, Count int }

// Always are all operations.
var Always = Window{Count: 1 << 30}

func (w Window) has(n int) bool { return n >= w.Skip && n-w.Skip < w.Count }

// Counts are how many operations there were since the faults were set.
type Counts struct {
	Writes, Reads, Syncs int
	Changes              int   // that PowerFor counts
	Failed               int   // of them
	Lies                 int   // syncs that did nothing
	Used                 int64 // bytes of pages, of files that have a name or are open
	Pending              int   // pages that are not durable
}

// disk is a file system's state.
type disk struct {
	mu     sync.Mutex
	random *rand.Rand
	root   *inode
	next   uint64
	inodes map[uint64]*inode // all there ever were since the newest cut
	faults Faults
	counts Counts
	off    bool // there is no power: nothing more is written

	freed *sync.Cond // something was released
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

// link gives an inode a name, and takes the name from another where it has it.
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

// release gives back the room of a file that has neither name nor handle. Its inode stays:
// after a cut it may have its name again.
func (d *disk) release(n *inode) {
	if n.links == 0 && n.handles == 0 && !n.dir {
		d.counts.Used -= int64(len(n.now.pages)) * pageSize
	}
	d.freed.Broadcast()
}

// powered counts a change, and says whether there is power for it.
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

// cut is the end of power. What is read goes on as it was, for whoever still has the old
// disk; nothing more is written. The returned disk is what a start after it finds.
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
			for _, name := range slices.Sorted(maps.Keys(n.stableNames)) { // the same choices for the same seed
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

// replace changes bytes in all files, as if they had been written by another: with has as
// many. It returns how often it did.
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
