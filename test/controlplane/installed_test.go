package controlplane

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServers: installed servers are used if their versions fit, from the folder of AssetsEnv or the PATH, and
// nothing else is built.
func TestServers(t *testing.T) {
	built, err := Build(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	fits, old, broken := t.TempDir(), t.TempDir(), t.TempDir()
	for name, path := range map[string]string{etcd.name: built.Etcd, apiserver.name: built.APIServer} {
		if err := os.Symlink(path, filepath.Join(fits, name)); err != nil {
			t.Fatal(err)
		}
		script(t, filepath.Join(broken, name), "exit 3")
	}
	script(t, filepath.Join(old, etcd.name), "echo 'etcd Version: 3.4.30'")
	script(t, filepath.Join(old, apiserver.name), "echo 'Kubernetes v1.30.9'")

	own := Binaries{Etcd: built.Etcd, APIServer: built.APIServer}
	found := Binaries{Etcd: filepath.Join(fits, etcd.name), APIServer: filepath.Join(fits, apiserver.name)}
	for _, tc := range []struct {
		name, assets, path string
		want               Binaries
		said               string
	}{
		{"assets", fits, old, found, "using " + found.APIServer},
		{"PATH", "", fits, found, "using " + found.Etcd},
		{"too old", old, fits, own, "is version 1.30, and 1.31 or newer is needed"},
		{"does not run", broken, "", own, "does not run"},
		{"missing", t.TempDir(), "", own, "no such file"},
		{"not on the PATH", "", t.TempDir(), own, "not installed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(AssetsEnv, tc.assets)
			t.Setenv("PATH", tc.path+":/usr/bin:/bin")
			var log bytes.Buffer
			got, err := Servers(t.Context(), &log)
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if !strings.Contains(log.String(), tc.said) {
				t.Errorf("%q lacks %q", log.String(), tc.said)
			}
		})
	}
}

func script(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}
