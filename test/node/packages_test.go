package node

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// installed maps paths that both packages have to their modes.
var installed = map[string]string{
	"/etc/snapcache":                                      "drwxr-xr-x",
	"/etc/snapcache/agent.yaml":                           "-rw-r--r--",
	"/usr/bin/snapcache":                                  "-rwxr-xr-x",
	"/usr/lib/systemd/system/snapcache.service":           "-rw-r--r--",
	"/usr/lib/systemd/system/snapcache.socket":            "-rw-r--r--",
	"/usr/lib/systemd/system/snapcache-snapshot.service":  "-rw-r--r--",
	"/usr/lib/systemd/system/snapcache-snapshot.timer":    "-rw-r--r--",
	"/usr/lib/systemd/system/snapcache@.service":          "-rw-r--r--",
	"/usr/lib/systemd/system/snapcache@.socket":           "-rw-r--r--",
	"/usr/lib/systemd/system/snapcache-snapshot@.service": "-rw-r--r--",
	"/usr/lib/systemd/system/snapcache-snapshot@.timer":   "-rw-r--r--",
	"/usr/lib/sysusers.d/snapcache.conf":                  "-rw-r--r--",
	"/usr/share/bash-completion/completions/snapcache":    "-rw-r--r--",
	"/usr/share/fish/vendor_completions.d/snapcache.fish": "-rw-r--r--",
	"/usr/share/man/man1/snapcache.1.gz":                  "-rw-r--r--",
	"/usr/share/man/man1/snapcache-snapshot-restore.1.gz": "-rw-r--r--",
	"/usr/share/doc/snapcache/NOTICES.gz":                 "-rw-r--r--",
	"/usr/share/doc/snapcache/snapcache.cdx.json":         "-rw-r--r--",
	"/usr/share/doc/snapcache/examples/agent.yaml":        "-rw-r--r--",
	nodeExamples:                 "drwxr-xr-x",
	nodeExamples + "/agent.yaml": "-rw-r--r--",
	nodeExamples + "/kubelet.service.d/10-snapcache.conf": "-rw-r--r--",
}

// TestPackages checks the content of the packages: complete, owned by root, and writable
// for root only.
func TestPackages(t *testing.T) {
	needs(t, false, "dpkg-deb", "rpm")
	for _, tc := range []struct {
		kind string
		list []string
	}{
		{"deb", []string{"dpkg-deb", "-c", one(t, dist(t, newVersion), "*.deb")}},
		{"rpm", []string{"rpm", "-qlvp", one(t, dist(t, newVersion), "*.rpm")}},
	} {
		found := map[string]string{}
		for line := range strings.Lines(output(t, tc.list...)) {
			fields := strings.Fields(line)
			mode, path := fields[0], strings.TrimSuffix(strings.TrimPrefix(fields[len(fields)-1], "."), "/")
			found[path] = mode
			require.NotContains(t, mode[5:], "w", "%s: %s", tc.kind, line)
			require.Contains(t, []string{"root/root", "0/0", "root"}, fields[map[string]int{"deb": 1, "rpm": 2}[tc.kind]], "%s: %s", tc.kind, line)
		}
		for path, mode := range installed {
			require.Equal(t, mode, found[path], "%s: %s", tc.kind, path)
		}
	}
	require.Contains(t, output(t, "rpm", "-qp", "--configfiles", one(t, dist(t, newVersion), "*.rpm")), "/etc/snapcache/agent.yaml")
}

// TestVersionsInOrder checks that a release candidate's package sorts before the release's.
func TestVersionsInOrder(t *testing.T) {
	needs(t, false, "dpkg", "dpkg-deb")
	var versions []string
	for _, v := range []string{oldVersion, newVersion} {
		versions = append(versions, strings.TrimSpace(output(t, "dpkg-deb", "-f", one(t, dist(t, v), "*.deb"), "Version")))
	}
	output(t, "dpkg", "--compare-versions", versions[0], "lt", versions[1])
}

// TestLintian checks that lintian finds neither an error nor a warning, and needs each override.
func TestLintian(t *testing.T) {
	needs(t, false, "lintian")
	found := output(t, "lintian", "--allow-root", "--display-info", "--fail-on", "error,warning", one(t, dist(t, newVersion), "*.deb"))
	require.NotContains(t, found, "override")
}

// TestManualPages checks that groff accepts the manual pages and that man finds their names.
func TestManualPages(t *testing.T) {
	needs(t, false, "dpkg-deb", "groff", "lexgrog")
	dir := t.TempDir()
	output(t, "dpkg-deb", "-x", one(t, dist(t, newVersion), "*.deb"), dir)
	pages, err := filepath.Glob(filepath.Join(dir, "usr/share/man/man1/*"))
	require.NoError(t, err)
	require.Greater(t, len(pages), 15)
	output(t, append([]string{"lexgrog"}, pages...)...)
	for _, page := range pages {
		warnings := output(t, "sh", "-c", `gunzip -c "$0" | groff -man -Tutf8 -ww -z 2>&1`, page)
		require.Empty(t, warnings, page)
	}
}

// TestProgram checks that the program is static and has its commit in it, and that the SBOM lists
// its modules.
func TestProgram(t *testing.T) {
	path := one(t, dist(t, newVersion), "snapcache-linux-amd64")
	program, err := elf.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, program.Close()) }()
	libraries, err := program.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
	require.Nil(t, program.Section(".interp"))

	info, err := buildinfo.ReadFile(path)
	require.NoError(t, err)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	require.Equal(t, "0", settings["CGO_ENABLED"])
	require.Equal(t, "true", settings["-trimpath"])
	require.Regexp(t, "^[0-9a-f]{40}$", settings["vcs.revision"])

	data := harness.ReadFile(t, path+".cdx.json")
	var bom struct {
		BOMFormat  string
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name, Version string }
	}
	require.NoError(t, json.Unmarshal(data, &bom))
	require.Equal(t, "CycloneDX", bom.BOMFormat)
	require.Equal(t, newVersion, bom.Metadata.Component.Version)
	components := map[string]string{}
	for _, c := range bom.Components {
		components[c.Name] = c.Version
	}
	for _, dep := range info.Deps {
		require.Equal(t, dep.Version, components[dep.Path], dep.Path)
	}
	require.Contains(t, components, "std")
}

// TestChecksums checks that each file has a checksum.
func TestChecksums(t *testing.T) {
	dir := dist(t, newVersion)
	require.Equal(t, checksums(t, dir), string(harness.ReadFile(t, filepath.Join(dir, "SHA256SUMS"))))
}

// TestReproducible builds the packages again, from a copy of the tree elsewhere and with empty
// caches.
func TestReproducible(t *testing.T) {
	needs(t, false, "git")
	first := dist(t, oldVersion) // for this machine alone: it is enough to build that twice
	root := harness.Root(t)
	tree := filepath.Join(t.TempDir(), "elsewhere")
	output(t, "git", "clone", "--quiet", root, tree)
	// With uncommitted changes.
	for name := range strings.SplitSeq(strings.TrimSuffix(output(t, "git", "-C", root, "ls-files", "-z", "-c", "-o", "--exclude-standard"), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			require.NoError(t, os.Remove(filepath.Join(tree, name)))
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755))
		info, err := os.Stat(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(tree, name), data, info.Mode()))
	}
	second := filepath.Join(t.TempDir(), "dist")
	makeDist(t, tree, second, oldVersion, []string{"amd64"}, "GOCACHE="+t.TempDir())
	require.Equal(t, checksums(t, first), checksums(t, second))
}

// checksums returns the checksums of a directory's files in the format of sha256sum.
func checksums(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "SHA256SUMS" {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(harness.ReadFile(t, path)), entry.Name())
		return nil
	}))
	require.NotEmpty(t, b.String())
	return b.String()
}

// output runs a command, which must succeed, and returns its standard output.
func output(t *testing.T, args ...string) string {
	t.Helper()
	return string(harness.Output(t, exec.CommandContext(t.Context(), args[0], args[1:]...)))
}
