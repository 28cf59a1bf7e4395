//go:build !unix

package snapshot

import "os"

// tryLock does nothing: no agent runs on this platform, and commands that only read take no lock.
func tryLock(*os.File) (busy bool, err error) { return false, nil }
