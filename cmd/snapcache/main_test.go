package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"snapcache": main})
}

// leakChecked is goleak.VerifyTestMain for a TestMain that is testscript's.
type leakChecked struct{ *testing.M }

func (m leakChecked) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs the stories in testdata. Beside testscript's own commands they
// have those of scripts_test.go.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mkdb": makeDB, "spoil": spoil, "edit": editDB, "seal": sealDB, "bloat": bloatDB, "lock": lockDB, "serve": serve, "code": code,
		},
		Setup: func(env *testscript.Env) error {
			// Neither the defaults of this machine nor of this user.
			env.Setenv("STATE_DIRECTORY", env.WorkDir+"/state")
			env.Setenv("RUNTIME_DIRECTORY", env.WorkDir+"/run")
			env.Setenv("SNAPCACHE_CONFIG", "")
			// The race detector sleeps for a second at the end of each process.
			env.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
			return nil
		},
	})
}
