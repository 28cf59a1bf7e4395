// Package systemd is what the agent has to do with systemd: it tells it how it is (ready, reloading,
// stopping, in a word or two, and alive), takes its socket, and logs to its journal. The unit files are
// beside it.
//
// What holds:
//
//   - Without systemd ($NOTIFY_SOCKET unset) every call does nothing and returns no error, so that
//     callers need not ask where they run.
//   - The watchdog is fed only while the agent calls itself healthy. A watchdog that is fed by a timer
//     alone would tell that the timer works.
//   - No call blocks on systemd for longer than one datagram to a local socket takes.
package systemd
