package faultfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

const (
	pageSize   = 4096
	sectorSize = 512
)

// page is the content of a page. It is immutable; nil is a hole.
type page *[pageSize]byte

// content is the length and the pages of a file.
type content struct {
	size  int64
	pages map[int64]page
}

func (c content) clone() content { return content{c.size, maps.Clone(c.pages)} }

// inode is a file or a directory: its state for a reader, and its durable state on the disk.
type inode struct {
	id   uint64
	dir  bool
	mode uint32

	now    content
	stable content

	// Versions of the pages and lengths since the last sync, oldest first.
	versions map[int64][]page
	sizes    []int64

	names       map[string]*inode // of a directory
	stableNames map[string]*inode
	moves       []move // since the last sync

	links   int
	handles int
}

// move is an atomic change of names in one directory.
type move struct {
	remove, add string // either may be empty
	what        *inode // the inode that gets the name add
}

func newInode(id uint64, dir bool, mode uint32) *inode {
	n := &inode{id: id, dir: dir, mode: mode}
	if dir {
		n.names, n.stableNames = map[string]*inode{}, map[string]*inode{}
	} else {
		n.now.pages, n.stable.pages, n.versions = map[int64]page{}, map[int64]page{}, map[int64][]page{}
	}
	return n
}

func (n *inode) set(at int64, p page) {
	if p == nil {
		delete(n.now.pages, at)
	} else {
		n.now.pages[at] = p
	}
	n.versions[at] = append(n.versions[at], p)
}

// write makes a new version of each page that data touches.
func (n *inode) write(off int64, data []byte) {
	for len(data) > 0 {
		at, in := off/pageSize, off%pageSize
		var p [pageSize]byte
		if old := n.now.pages[at]; old != nil {
			p = *old
		}
		c := copy(p[in:], data)
		n.set(at, &p)
		off, data = off+int64(c), data[c:]
	}
	if off > n.now.size {
		n.now.size = off
		n.sizes = append(n.sizes, off)
	}
}

func (n *inode) read(off int64, buf []byte) int {
	if off >= n.now.size {
		return 0
	}
	buf = buf[:min(int64(len(buf)), n.now.size-off)]
	for done := 0; done < len(buf); {
		at, in := (off+int64(done))/pageSize, (off+int64(done))%pageSize
		part := buf[done:min(len(buf), done+int(pageSize-in))]
		if p := n.now.pages[at]; p != nil {
			copy(part, p[in:])
		} else {
			clear(part)
		}
		done += len(part)
	}
	return len(buf)
}

func (n *inode) truncate(size int64) {
	if size == n.now.size {
		return
	}
	for at, p := range n.now.pages {
		switch {
		case at*pageSize >= size:
			n.set(at, nil)
		case (at+1)*pageSize > size && size < n.now.size:
			cut := *p
			clear(cut[size-at*pageSize:])
			n.set(at, &cut)
		}
	}
	n.now.size = size
	n.sizes = append(n.sizes, size)
}

// sync makes the current state durable.
func (n *inode) sync() {
	if n.dir {
		n.stableNames, n.moves = maps.Clone(n.names), nil
		return
	}
	for at := range n.versions {
		if p := n.now.pages[at]; p != nil {
			n.stable.pages[at] = p
		} else {
			delete(n.stable.pages, at)
		}
	}
	n.stable.size = n.now.size
	n.versions, n.sizes = map[int64][]page{}, nil
}

// cut adds to the stable state the changes since the last sync that a power cut now would leave.
func (n *inode) cut(r *rand.Rand, c Choice) {
	if n.dir {
		for _, m := range n.moves {
			if !c.keep(r) {
				continue
			}
			if m.remove != "" {
				delete(n.stableNames, m.remove)
			}
			if m.add != "" {
				n.stableNames[m.add] = m.what
			}
		}
		return
	}
	for _, at := range slices.Sorted(maps.Keys(n.versions)) {
		versions := append([]page{n.stable.pages[at]}, n.versions[at]...)
		if p := c.pick(r, versions); p != nil {
			n.stable.pages[at] = p
		} else {
			delete(n.stable.pages, at)
		}
	}
	if len(n.sizes) > 0 && c.keep(r) {
		n.stable.size = n.sizes[r.IntN(len(n.sizes))]
		if c == KeepAll {
			n.stable.size = n.now.size
		}
	}
	for at := range n.stable.pages {
		if at*pageSize >= n.stable.size {
			delete(n.stable.pages, at)
		}
	}
}

// fail is the effect of a failed sync: the disk has some version of each page, and the kernel
// regards all pages as written, so no later sync writes them again.
func (n *inode) fail(r *rand.Rand) {
	if n.dir {
		return
	}
	n.cut(r, Mixed)
	n.versions, n.sizes = map[int64][]page{}, nil
}

// Choice selects which unsynced changes survive a power cut.
type Choice int

const (
	// Mixed keeps, drops and tears at random.
	Mixed Choice = iota
	// DropAll keeps nothing.
	DropAll
	// KeepAll loses nothing.
	KeepAll
	// TearAll tears each page, and keeps or drops names at random.
	TearAll
)

func (c Choice) keep(r *rand.Rand) bool {
	return c == KeepAll || c != DropAll && r.IntN(2) == 0
}

// pick returns one version of a page, or a torn one: sectors of two versions.
func (c Choice) pick(r *rand.Rand, versions []page) page {
	newest := versions[len(versions)-1]
	switch {
	case c == KeepAll:
		return newest
	case c == DropAll:
		return versions[0]
	case c == Mixed && r.IntN(4) > 0:
		return versions[r.IntN(len(versions))]
	}
	var torn [pageSize]byte
	if old := versions[r.IntN(len(versions)-1)]; old != nil {
		torn = *old
	}
	from, length := r.IntN(pageSize/sectorSize), 1+r.IntN(pageSize/sectorSize)
	var with [pageSize]byte
	if newest != nil {
		with = *newest
	}
	end := min(pageSize, (from+length)*sectorSize)
	copy(torn[from*sectorSize:end], with[from*sectorSize:end])
	return &torn
}
