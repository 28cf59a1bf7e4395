package systemd

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inherit makes TestMain's process act as a service that inherits sockets from systemd.
const inherit = "SNAPCACHE_TEST_INHERIT"

// TestInherited is the service: it reports what it inherited, and answers one connection.
func TestInherited(t *testing.T) {
	if os.Getenv(inherit) == "" {
		t.Skip("run by TestListener")
	}
	socket, err := Socket()
	switch {
	case err != nil:
		t.Logf("error: %v", err)
		return
	case socket == nil:
		t.Log("none")
		return
	}
	if again, err := Socket(); again != nil || err != nil {
		t.Errorf("asked again: %v, %v", again, err)
	}
	for range 2 { // it listens anew
		answer(t, socket)
	}
}

// answer listens on a socket, and answers one connection.
func answer(t *testing.T, socket *os.File) {
	t.Helper()
	listener, err := Listen(socket)
	if err != nil {
		t.Logf("error: %v", err)
		return
	}
	defer listener.Close()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
}

// service runs TestInherited with sockets as systemd passes them: from descriptor 3 on, and with
// the process's own id in the environment, which a shell sets.
func service(t *testing.T, sockets ...*os.File) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"-c", `LISTEN_PID=$$ exec "$@" -test.run '^TestInherited$' -test.v`, "sh"}
	if emulator := os.Getenv("SNAPCACHE_TEST_EXEC"); emulator != "" { // make test-cross
		command = append(command, emulator)
	}
	cmd := exec.CommandContext(t.Context(), "sh", append(command, self)...)
	cmd.Env = append(os.Environ(), inherit+"=1", "LISTEN_FDS="+string(rune('0'+len(sockets))))
	cmd.ExtraFiles = sockets
	return cmd
}

func TestListener(t *testing.T) {
	dir, err := os.MkdirTemp("", "listen") // a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	unixFile, err := unix.File()
	if err != nil {
		t.Fatal(err)
	}
	defer unixFile.Close()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	tcpFile, err := tcp.File()
	if err != nil {
		t.Fatal(err)
	}
	defer tcpFile.Close()

	t.Run("a unix socket", func(t *testing.T) {
		cmd := service(t, unixFile)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			// Before the service accepts it, like a client whose connection starts the service.
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
				t.Errorf("got %q, %v", line, err)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the service removed the socket's file: %v", err)
		}
	})
	for _, test := range []struct {
		name    string
		sockets []*os.File
		want    string
	}{
		{"none", nil, "none"},
		{"two", []*os.File{unixFile, unixFile}, "error: systemd passed 2 sockets"},
		{"a TCP socket", []*os.File{tcpFile}, "error: systemd passed a socket on 127.0.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := service(t, test.sockets...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), test.want) {
				t.Errorf("want %q: %v\n%s", test.want, err, out)
			}
		})
	}
}
