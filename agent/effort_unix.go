//go:build unix

package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// work is what the process has done so far, as the system counts it.
type work struct {
	blocks int64 // read and written
	cpu    int64 // in steps that a process which does nothing does not make
}

// cpuStep is more than a process that does nothing takes in the time between two looks.
const cpuStep = 250 * time.Millisecond

// effort is what the process has done so far.
func effort() work {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return work{}
	}
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return work{int64(u.Inblock) + int64(u.Oublock), int64(cpu / cpuStep)} //nolint:unconvert // 32 bits elsewhere
}
