package boltfile

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// networks are the numbers by which Linux knows network file systems. Those that run in
// user space, as sshfs does, all have one number, together with ones that are none.
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

// NetworkFS returns the name of the network file system that a path is on; empty if
// it is on none that is known.
func NetworkFS(path string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return "", &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return networks[uint32(s.Type)], nil //nolint:gosec // 32 bits are all there is to it
}
