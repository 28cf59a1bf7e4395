package boltfile

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// FreeDisk returns how many bytes an ordinary process may write to the file system of dir.
func FreeDisk(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:gosec,unconvert // no disk is so large; the types differ between platforms
}

// ChownLike gives a file the owner of another: root may compact a database that an agent must be
// able to open.
func ChownLike(path string, like fs.FileInfo) error {
	owner, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if is, ok := info.Sys().(*syscall.Stat_t); ok && is.Uid == owner.Uid && is.Gid == owner.Gid {
		return nil
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid))
}
