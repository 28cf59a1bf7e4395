package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// resourceUsage is the I/O and the CPU time of the process so far, as the system counts them.
type resourceUsage struct {
	blocks int64 // blocks read and written
	cpu    int64 // CPU time in units of cpuStep; an idle process stays below one per tick
}

// cpuStep is more CPU time than an idle process takes between two ticks.
const cpuStep = 250 * time.Millisecond

// processUsage returns the usage of this process since its start, or zero if it can't be read.
func processUsage() resourceUsage {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return resourceUsage{}
	}
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return resourceUsage{int64(u.Inblock) + int64(u.Oublock), int64(cpu / cpuStep)} //nolint:unconvert // the fields have 32 bits on other platforms
}
