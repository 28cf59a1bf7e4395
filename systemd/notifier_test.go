package systemd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is systemd's end of the notify socket.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func listen(t *testing.T) *manager {
	t.Helper()
	// Not t.TempDir: it contains the test's name, and may be too long for a socket.
	dir, err := os.MkdirTemp("", "notify")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t: t, conn: conn}
}

// expect reads one datagram. Datagrams on a unix socket are neither lost nor reordered, so it also
// proves that no other came before.
func (m *manager) expect(want string) {
	m.t.Helper()
	if got := m.receive(want); got != want {
		m.t.Fatalf("got %q, want %q", got, want)
	}
}

// receive returns the next datagram. want is for the failure message.
func (m *manager) receive(want string) string {
	m.t.Helper()
	// Only a failing test waits this long.
	if err := m.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		m.t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	n, err := m.conn.Read(buffer)
	if err != nil {
		m.t.Fatalf("waiting for %q: %v", want, err)
	}
	return string(buffer[:n])
}

func TestMessages(t *testing.T) {
	m := listen(t)
	for _, test := range []struct {
		name string
		send func() error
		want string
	}{
		{"ready", Ready, "READY=1"},
		{"status", func() error { return Status("20,100 objects, 3 s behind") }, "STATUS=20,100 objects, 3 s behind"},
		{"status of several lines", func() error { return Status("one\nREADY=1\r\x00") }, "STATUS=one READY=1  "},
		{"starting", func() error { return Starting("checking pods") }, "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=checking pods"},
		{"working", Working, "EXTEND_TIMEOUT_USEC=30000000\nWATCHDOG=1"},
		{"stopping", func() error { return Stopping("last flush") }, "STOPPING=1\nSTATUS=last flush"},
	} {
		if err := test.send(); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		m.expect(test.want)
	}
}

// A reload has its start time, by the clock that systemd compares it with.
func TestReloading(t *testing.T) {
	m := listen(t)
	if err := Reloading("reading it again"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(m.receive("RELOADING=1"), "\n")
	if len(lines) != 3 || lines[0] != "RELOADING=1" || lines[2] != "STATUS=reading it again" {
		t.Fatalf("got %q", lines)
	}
	usec, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "MONOTONIC_USEC="), 10, 64)
	if err != nil || usec <= 0 {
		t.Errorf("got %q: %v", lines[1], err)
	}
}

func TestWithoutSystemd(t *testing.T) {
	for _, variable := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		t.Setenv(variable, "")
	}
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"Ready", Ready},
		{"Status", func() error { return Status("fine") }},
		{"Stopping", func() error { return Stopping("bye") }},
		{"Watchdog", func() error {
			return Watchdog(t.Context(), clock.RealClock{}, func(time.Duration) bool { t.Error("asked for health"); return true })
		}},
	} {
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestNotifySocketMissing(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if err := Ready(); err == nil {
		t.Error("no error although no one listens")
	}
}

// tickerClock reports on made when a ticker was made: from then on, stepping the clock has an
// effect.
type tickerClock struct {
	*clocktesting.FakeClock
	made chan time.Duration
}

func (c *tickerClock) NewTicker(d time.Duration) clock.Ticker {
	ticker := c.FakeClock.NewTicker(d)
	c.made <- d
	return ticker
}

func TestWatchdog(t *testing.T) {
	m := listen(t)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(60_000_000))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))

	c := &tickerClock{FakeClock: clocktesting.NewFakeClock(time.Unix(0, 0)), made: make(chan time.Duration, 1)}
	health := make(chan bool)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- Watchdog(ctx, c, func(interval time.Duration) bool {
			if interval != time.Minute {
				t.Errorf("healthy was called with the interval %v", interval)
			}
			return <-health
		})
	}()

	if interval := <-c.made; interval != 30*time.Second {
		t.Fatalf("pings every %v, want half of 60s", interval)
	}
	c.Step(30 * time.Second)
	health <- true
	m.expect("WATCHDOG=1")
	c.Step(30 * time.Second)
	health <- false
	c.Step(30 * time.Second)
	health <- true
	m.expect("WATCHDOG=1")

	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// If the unhealthy tick had sent a ping, it would come before this.
	if err := Status("end"); err != nil {
		t.Fatal(err)
	}
	m.expect("STATUS=end")
}

func TestWatchdogEnvironment(t *testing.T) {
	for _, test := range []struct {
		name string
		usec string
		pid  string
		bad  bool
	}{
		{name: "for another process", usec: "60000000", pid: strconv.Itoa(os.Getpid() + 1)},
		{name: "no number", usec: "60s", bad: true},
		{name: "zero", usec: "0", bad: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("WATCHDOG_USEC", test.usec)
			t.Setenv("WATCHDOG_PID", test.pid)
			err := Watchdog(t.Context(), clock.RealClock{}, func(time.Duration) bool { return true })
			if (err != nil) != test.bad {
				t.Errorf("%v", err)
			}
		})
	}
}
