package files

import (
	"io/fs"
	"os"
	"syscall"
)

// ChownLike gives a new file or directory the owner of another: a command run by root may create files that
// an agent must be able to open.
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
