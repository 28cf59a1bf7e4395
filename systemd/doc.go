// Package systemd connects the agent to systemd: notifications of its state (ready, reloading,
// stopping, a status line, alive), socket activation, and logging to the journal. The unit files
// are in the same directory.
//
// Invariants:
//
//   - Without systemd ($NOTIFY_SOCKET unset) every call does nothing and returns no error, so that
//     callers need not check where they run.
//   - The watchdog is fed only while the agent reports that it is healthy. If only a timer fed it,
//     it would prove no more than that the timer works.
//   - No call blocks on systemd for longer than it takes to send a datagram to a local socket.
package systemd
