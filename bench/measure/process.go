package measure

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the CPU time of a living process with all its threads, in nanoseconds. It reads the
// clock of clock_getcpuclockid(3).
func CPU(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED, of a whole process
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("cpu clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// Memory is the resident memory of a process, in bytes.
type Memory struct {
	Peak int64 `json:"peakBytes"` // peak of the resident memory (VmHWM)
	Anon int64 `json:"anonBytes"` // resident and private (RssAnon)
	File int64 `json:"fileBytes"` // resident pages of files, which the kernel may take back (RssFile)

	Tables int64 `json:"tablesBytes,omitempty"` // of pages (VmPTE)
}

// Own returns the memory of the process that is not a file's: heap, stacks and page tables.
func (m Memory) Own() int64 { return m.Anon + m.Tables }

// ReadMemory returns the memory of a living process.
func ReadMemory(pid int) (Memory, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return Memory{}, fmt.Errorf("memory: %w", err)
	}
	var m Memory
	for field, to := range map[string]*int64{"VmHWM": &m.Peak, "RssAnon": &m.Anon, "RssFile": &m.File, "VmPTE": &m.Tables} {
		text := strings.TrimSuffix(value(b, field), " kB")
		kb, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("memory: %s of %s: %w", field, path, err)
		}
		*to = kb << 10
	}
	return m, nil
}

// Written returns the bytes that a living process has written to disk, in whole pages (write_bytes
// of proc_pid_io(5)).
func Written(pid int) (int64, error) {
	path := fmt.Sprintf("/proc/%d/io", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("bytes written: %w", err)
	}
	n, err := strconv.ParseInt(value(b, "write_bytes"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("bytes written: %s: %w", path, err)
	}
	return n, nil
}

// value returns the value after a name and a colon in one of the lines.
func value(b []byte, name string) string {
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if field, v, ok := strings.Cut(s.Text(), ":"); ok && field == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// FileBytes returns the space that a file takes on its disk. A file with holes takes less than its
// length.
func FileBytes(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("size of %s: %w", path, err)
	}
	return st.Blocks * 512, nil
}
