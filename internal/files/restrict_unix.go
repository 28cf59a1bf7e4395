//go:build unix

package files

import "syscall"

// restrict sets the mode of a socket before it has a name. On Linux its file gets this mode, so that no
// other user can connect before Listen sets the file's. Elsewhere this has no effect.
func restrict(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) }
