package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMinorOf(t *testing.T) {
	for version, want := range map[string]int{"v0.33.0": 33, "v0.37.2": 37, "v0.36.0-rc.1": 36} {
		got, err := minorOf(version)
		require.NoError(t, err, version)
		require.Equal(t, want, got)
	}
	for _, version := range []string{"", "v0.32.9", "v0.38.0", "v1.5.2", "v12.0.0+incompatible", "v0.x.1"} {
		_, err := minorOf(version)
		require.ErrorContains(t, err, "only 0.33 to 0.37", version)
	}
}

// TestCopyClientGo: the client-go of go.mod gets the constructor, and is otherwise as it was.
func TestCopyClientGo(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", clientGo).Output()
	require.NoError(t, err)
	from, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	to := filepath.Join(t.TempDir(), "client-go")
	require.NoError(t, copyClientGo(from, version, to))

	read := func(parts ...string) string {
		b, err := os.ReadFile(filepath.Join(parts...))
		require.NoError(t, err)
		return string(b)
	}
	before, after := read(from, "tools", "cache", "shared_informer.go"), read(to, "tools", "cache", "shared_informer.go")
	require.True(t, before == strings.Replace(after, string(constructorCall), "", 1), "something else was changed")
	require.True(t, strings.Contains(after, "options SharedIndexInformerOptions) SharedIndexInformer {"+string(constructorCall)))
	require.Equal(t, string(constructorFile), read(to, "tools", "cache", "shared_informer_constructor.go"))
	require.NoFileExists(t, filepath.Join(to, "tools", "cache", "declarations_snapcache.go"), "it has the types itself")
	require.Equal(t, read(from, "rest", "request.go"), read(to, "rest", "request.go"))

	require.NoError(t, copyClientGo(from, "v0.35.0", to), "again, over the old copy")
	require.Equal(t, string(declarationsFile), read(to, "tools", "cache", "declarations_snapcache.go"))
}

func TestAddCall(t *testing.T) {
	for source, want := range map[string]string{
		"package cache\nfunc New() {}": "it has no function NewSharedIndexInformerWithOptions",
		"package cache\nfunc NewSharedIndexInformerWithOptions(lw L, options O) I { return nil }": "has other arguments than were released: lw, options",
		"package cache\nfunc (x T) NewSharedIndexInformerWithOptions() {}":                        "it has no function",
		"package": "expected 'IDENT'",
	} {
		_, err := addCall([]byte(source))
		require.ErrorContains(t, err, want)
	}
}

// TestWrite_Refused: a program that can't be built gets an error before anything is built.
func TestWrite_Refused(t *testing.T) {
	for name, c := range map[string]struct{ mod, source, want, pattern string }{
		"without go.mod":    {"", "package main\nfunc main() {}", "no go.mod in", "."},
		"without client-go": {"module example.com/p\ngo 1.26.0\n", "package main\nfunc main() {}", ". does not use k8s.io/client-go", "."},
		"a library":         {"module example.com/p\ngo 1.26.0\n", "package p\n", "there is no main package in .", "."},
		"client-go is replaced": {
			"module example.com/p\ngo 1.26.0\nrequire k8s.io/client-go v0.37.2\nreplace k8s.io/client-go => ./fork\n",
			imports, "go.mod replaces k8s.io/client-go by ./fork", ".",
		},
		"a package that is wrong": {
			"module example.com/p\ngo 1.26.0\n", "package main\nimport \"example.com/p/none\"\nfunc main() {}", "go list", ".",
		},
		"a main package of another module": {
			"module example.com/p\ngo 1.26.0\nrequire example.com/q v0.0.0\nreplace example.com/q => ./q\n",
			"package main\nfunc main() {}", "example.com/q is in another module", "example.com/q",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.mod != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(c.mod), 0o600))
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(c.source), 0o600))
			fork := filepath.Join(dir, "fork", "tools", "cache")
			require.NoError(t, os.MkdirAll(fork, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "fork", "go.mod"), []byte("module k8s.io/client-go\ngo 1.26.0\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(fork, "cache.go"), []byte("package cache\n"), 0o600))
			other := filepath.Join(dir, "q")
			require.NoError(t, os.Mkdir(other, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(other, "go.mod"), []byte("module example.com/q\ngo 1.26.0\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(other, "main.go"), []byte("package main\nfunc main() {}"), 0o600))
			o := overlay{program: program{dir: dir}, out: filepath.Join(dir, ".snapcache"), patterns: []string{c.pattern}, version: "v0.0.0"}
			_, err := o.write(t.Context())
			require.ErrorContains(t, err, c.want)
		})
	}
}

const imports = "package main\nimport _ \"k8s.io/client-go/tools/cache\"\nfunc main() {}"
