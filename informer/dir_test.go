package informer_test

import (
	"os"
	"os/exec"
	"testing"

	"pgregory.net/rapid"
)

// rapidDir returns a directory for one run of a property.
func rapidDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "informer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// again returns the command that runs a test in a process of its own.
func again(t *testing.T, test, env string) *exec.Cmd {
	command := []string{os.Args[0], "-test.run=^" + test + "$", "-test.timeout=1m"}
	if emulator := os.Getenv("SNAPCACHE_TEST_EXEC"); emulator != "" { // make test-cross
		command = append([]string{emulator}, command...)
	}
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env)
	return cmd
}
