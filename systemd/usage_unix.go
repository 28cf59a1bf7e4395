//go:build unix

package systemd

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessUsage returns the usage of this process since its start, or zero if it can't be read.
func ProcessUsage() Usage {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return Usage{}
	}
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return Usage{int64(u.Inblock) + int64(u.Oublock), int64(cpu / cpuStep)} //nolint:unconvert // the fields have 32 bits on other platforms
}
