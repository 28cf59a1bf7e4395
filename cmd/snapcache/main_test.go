package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"snapcache": main})
}

// leakChecked is goleak.VerifyTestMain for testscript's TestMain.
type leakChecked struct{ *testing.M }

func (m leakChecked) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs the scenarios in testdata. They have testscript's own commands and those of
// scripts_test.go.
func TestScripts(t *testing.T) {
	path := emulated(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mkdb": makeDB, "spoil": spoil, "edit": editDB, "seal": sealDB, "bloat": bloatDB, "lock": lockDB, "serve": serve, "code": code,
		},
		Setup: func(env *testscript.Env) error {
			// Don't use the defaults of this machine and user.
			env.Setenv("STATE_DIRECTORY", env.WorkDir+"/state")
			env.Setenv("RUNTIME_DIRECTORY", env.WorkDir+"/run")
			env.Setenv("SNAPCACHE_CONFIG", "")
			// The race detector sleeps for a second at the end of each process.
			env.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
			env.Setenv("PATH", path+env.Getenv("PATH"))
			return nil
		},
	})
}

// emulated returns a PATH prefix with a snapcache that runs under the emulator of `make
// test-cross`, or nothing if the tests run natively.
func emulated(t *testing.T) string {
	t.Helper()
	emulator := os.Getenv("SNAPCACHE_TEST_EXEC")
	if emulator == "" {
		return ""
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// The name of the program makes the test binary act as snapcache.
	script := fmt.Sprintf("#!/bin/sh\nexec %s -0 snapcache %q \"$@\"\n", emulator, self)
	if err := os.WriteFile(filepath.Join(dir, "snapcache"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return dir + string(os.PathListSeparator)
}
