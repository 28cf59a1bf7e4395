package faultfs

import (
	"maps"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// server implements the kernel's requests on a disk. It ignores the kernel's Forget, whose timing
// is undefined: an inode is never dropped.
type server struct {
	fuse.RawFileSystem // answers all other requests with ENOSYS
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

// entry fills in the reply for an inode. Its timeouts are zero, so the kernel asks each time.
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

// GetAttr returns the attributes of an inode.
func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.attr(s.d.inodes[in.NodeId], &out.Attr)
	return fuse.OK
}

// SetAttr sets length or mode. Owner and times are not stored.
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

// Mkdir creates a directory.
func (s *server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n, status := s.add(in.NodeId, name, true, in.Mode)
	if status.Ok() {
		s.entry(n, out)
	}
	return status
}

// Create creates a file and opens it.
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

// Rmdir removes an empty directory.
func (s *server) Rmdir(c <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	s.d.mu.Lock()
	n := s.d.inodes[h.NodeId].names[name]
	s.d.mu.Unlock()
	if n != nil && len(n.names) > 0 {
		return fuse.Status(syscall.ENOTEMPTY)
	}
	return s.Unlink(c, h, name)
}

// Rename renames within one directory; other renames are not implemented.
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

// Link gives a file another name.
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

// Open opens a file and drops the kernel's cached pages of it. Later reads do use the cache, since
// a mapping needs it.
func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.inodes[in.NodeId].handles++
	return fuse.OK
}

// Release closes a handle. The kernel sends it with a delay.
func (s *server) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n := s.d.inodes[in.NodeId]
	n.handles--
	s.d.release(n)
}

// Read reads from a file.
func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n, err := s.d.read(s.d.inodes[in.NodeId], int64(in.Offset), buf)
	if err != 0 {
		return nil, fuse.Status(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// Write writes to a file.
func (s *server) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if err := s.d.write(s.d.inodes[in.NodeId], int64(in.Offset), data); err != 0 {
		return 0, fuse.Status(err)
	}
	return uint32(len(data)), fuse.OK
}

// Writev calls Write.
func (s *server) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

// Flush handles close(2), which syncs nothing.
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

// ReleaseDir does nothing: a directory's handle has no state.
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

// StatFs returns the size of the disk and its free space.
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

// Access permits everything.
func (s *server) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }
