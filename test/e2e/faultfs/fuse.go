package faultfs

import (
	"maps"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// server answers the kernel for a disk. Inodes are never forgotten: what the kernel says
// of that comes when it likes, and nothing depends on it.
type server struct {
	fuse.RawFileSystem // answers what is not here with ENOSYS
	d                  *disk
}

func newServer(d *disk) *server { return &server{fuse.NewDefaultRawFileSystem(), d} }

func (s *server) String() string { return "faultfs" }

func (s *server) attr(n *inode, out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink = n.id, syscall.S_IFREG|n.mode, uint32(n.links)
	out.Blksize = pageSize
	if n.dir {
		out.Mode = syscall.S_IFDIR | n.mode
		return
	}
	out.Size, out.Blocks = uint64(n.now.size), uint64(len(n.now.pages))*pageSize/sectorSize
}

// entry tells the kernel of an inode. It asks again each time.
func (s *server) entry(n *inode, out *fuse.EntryOut) {
	out.NodeId, out.Generation = n.id, 1
	s.attr(n, &out.Attr)
}

// Lookup finds a name.
func (s *server) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n := s.d.inodes[h.NodeId].names[name]
	if n == nil {
		return fuse.ENOENT
	}
	s.entry(n, out)
	return fuse.OK
}

// GetAttr tells of an inode.
func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.attr(s.d.inodes[in.NodeId], &out.Attr)
	return fuse.OK
}

// SetAttr changes length or mode. Owner and times are not kept.
func (s *server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n := s.d.inodes[in.NodeId]
	if mode, ok := in.GetMode(); ok {
		n.mode = mode & 0o7777
	}
	if size, ok := in.GetSize(); ok {
		if err := s.d.truncate(n, int64(size)); err != 0 {
			return fuse.Status(err)
		}
	}
	s.attr(n, &out.Attr)
	return fuse.OK
}

func (s *server) add(parent uint64, name string, dir bool, mode uint32) (*inode, fuse.Status) {
	in := s.d.inodes[parent]
	switch {
	case in.names[name] != nil:
		return nil, fuse.Status(syscall.EEXIST)
	case !s.d.powered():
		return nil, fuse.EIO
	}
	n := s.d.make(dir, mode&0o7777)
	s.d.link(in, name, n, "")
	return n, fuse.OK
}

// Mkdir makes a directory.
func (s *server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n, status := s.add(in.NodeId, name, true, in.Mode)
	if status.Ok() {
		s.entry(n, out)
	}
	return status
}

// Create makes a file and opens it.
func (s *server) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n, status := s.add(in.NodeId, name, false, in.Mode)
	if status.Ok() {
		s.entry(n, &out.EntryOut)
		n.handles++
	}
	return status
}

// Unlink removes the name of a file.
func (s *server) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	parent := s.d.inodes[h.NodeId]
	switch {
	case parent.names[name] == nil:
		return fuse.ENOENT
	case !s.d.powered():
		return fuse.EIO
	}
	s.d.unlink(parent, name)
	return fuse.OK
}

// Rmdir removes a directory that is empty.
func (s *server) Rmdir(c <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	s.d.mu.Lock()
	n := s.d.inodes[h.NodeId].names[name]
	s.d.mu.Unlock()
	if n != nil && len(n.names) > 0 {
		return fuse.Status(syscall.ENOTEMPTY)
	}
	return s.Unlink(c, h, name)
}

// Rename gives another name in the same directory: who needs more has to write it.
func (s *server) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	parent := s.d.inodes[in.NodeId]
	n := parent.names[from]
	switch {
	case n == nil:
		return fuse.ENOENT
	case !s.d.powered():
		return fuse.EIO
	case in.Newdir != in.NodeId || in.Flags != 0:
		return fuse.Status(syscall.EXDEV)
	}
	s.d.link(parent, to, n, from)
	return fuse.OK
}

// Link gives a file one more name.
func (s *server) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	parent, n := s.d.inodes[in.NodeId], s.d.inodes[in.Oldnodeid]
	switch {
	case parent.names[name] != nil:
		return fuse.Status(syscall.EEXIST)
	case !s.d.powered():
		return fuse.EIO
	}
	s.d.link(parent, name, n, "")
	s.entry(n, out)
	return fuse.OK
}

// Open opens a file. What the kernel has in its cache of it goes; a mapping needs the
// cache, so nothing is read past it.
func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.inodes[in.NodeId].handles++
	return fuse.OK
}

// Release ends a handle. The kernel tells it when it likes.
func (s *server) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n := s.d.inodes[in.NodeId]
	n.handles--
	s.d.release(n)
}

// Read reads.
func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n, err := s.d.read(s.d.inodes[in.NodeId], int64(in.Offset), buf)
	if err != 0 {
		return nil, fuse.Status(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// Write writes.
func (s *server) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if err := s.d.write(s.d.inodes[in.NodeId], int64(in.Offset), data); err != 0 {
		return 0, fuse.Status(err)
	}
	return uint32(len(data)), fuse.OK
}

// Writev has Write do it.
func (s *server) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

// Flush is a close, which syncs nothing.
func (s *server) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// Fsync makes a file durable.
func (s *server) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return fuse.Status(s.d.sync(s.d.inodes[in.NodeId]))
}

// FsyncDir makes a directory's names durable.
func (s *server) FsyncDir(c <-chan struct{}, in *fuse.FsyncIn) fuse.Status { return s.Fsync(c, in) }

// OpenDir opens a directory.
func (s *server) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }

// ReleaseDir ends a handle of a directory, which nothing hangs on.
func (s *server) ReleaseDir(*fuse.ReleaseIn) {}

// ReadDir lists a directory.
func (s *server) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	dir := s.d.inodes[in.NodeId]
	for i, name := range slices.Sorted(maps.Keys(dir.names)) {
		if uint64(i) < in.Offset {
			continue
		}
		n := dir.names[name]
		mode := uint32(syscall.S_IFREG)
		if n.dir {
			mode = syscall.S_IFDIR
		}
		if !out.AddDirEntry(fuse.DirEntry{Name: name, Ino: n.id, Mode: mode, Off: uint64(i) + 1}) {
			break
		}
	}
	return fuse.OK
}

// StatFs tells how much room there is.
func (s *server) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	space := s.d.faults.Space
	if space == 0 {
		space = s.d.counts.Used + 1<<40
	}
	free := uint64(max(0, space-s.d.counts.Used)) / pageSize
	out.Bsize, out.Frsize, out.NameLen = pageSize, pageSize, 255
	out.Blocks, out.Bfree, out.Bavail = uint64(space)/pageSize, free, free
	return fuse.OK
}

// Access is everybody's.
func (s *server) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }
