package boltfile

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// networks maps Linux's magic numbers of network file systems to their names. File systems in user
// space, such as sshfs, share one number with local ones, so they are not listed.
var networks = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.SMB2_SUPER_MAGIC: "SMB2",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.V9FS_MAGIC:       "9p",
	unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.CODA_SUPER_MAGIC: "Coda",
}

// networkFS returns the name of the network file system that a path is on; empty for any other.
func networkFS(path string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return "", &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return networks[uint32(s.Type)], nil //nolint:gosec // magic numbers have 32 bits
}

// FreeDisk returns how many bytes an ordinary process may write to the file system of dir.
func FreeDisk(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:gosec,unconvert // no disk is so large; the types differ between platforms
}
