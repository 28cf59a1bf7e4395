//go:build unix

package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// processUsage returns the usage of this process since its start, or zero if it can't be read.
func processUsage() resourceUsage {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return resourceUsage{}
	}
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return resourceUsage{int64(u.Inblock) + int64(u.Oublock), int64(cpu / cpuStep)} //nolint:unconvert // the fields have 32 bits on other platforms
}
