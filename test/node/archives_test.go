package node

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// packed is a file in an archive.
type packed struct {
	mode fs.FileMode
	data []byte
}

// TestArchives checks the content of each archive: the program, for the right machine, and the notices of all
// its modules. Only the one for Linux is run, by [TestPlugin].
func TestArchives(t *testing.T) {
	dir := dist(t, newVersion)
	for _, tc := range []struct {
		platform, file, program string
		machine                 func(io.ReaderAt) (any, error)
		want                    any
	}{
		{"linux/amd64", "snapcache-linux-amd64.tar.gz", "snapcache", func(r io.ReaderAt) (any, error) {
			f, err := elf.NewFile(r)
			if err != nil {
				return nil, err
			}
			return f.Machine, nil
		}, elf.EM_X86_64},
		{"darwin/amd64", "snapcache-darwin-amd64.tar.gz", "snapcache", machO, macho.CpuAmd64},
		{"darwin/arm64", "snapcache-darwin-arm64.tar.gz", "snapcache", machO, macho.CpuArm64},
		{"windows/amd64", "snapcache-windows-amd64.zip", "snapcache.exe", func(r io.ReaderAt) (any, error) {
			f, err := pe.NewFile(r)
			if err != nil {
				return nil, err
			}
			return f.Machine, nil
		}, uint16(pe.IMAGE_FILE_MACHINE_AMD64)},
	} {
		t.Run(tc.platform, func(t *testing.T) {
			files := unpackArchive(t, filepath.Join(dir, tc.file))
			for name, f := range files {
				require.True(t, strings.HasPrefix(name, "snapcache/") && filepath.IsLocal(name), name)
				require.Equal(t, map[bool]fs.FileMode{true: 0o755, false: 0o644}[name == "snapcache/"+tc.program], f.mode, name)
			}
			for _, name := range []string{"completion/snapcache.bash", "man/snapcache-get.1.gz"} {
				_, ok := files["snapcache/"+name]
				require.Equal(t, tc.program == "snapcache", ok, name)
			}

			program := files["snapcache/"+tc.program].data
			machine, err := tc.machine(bytes.NewReader(program))
			require.NoError(t, err)
			require.Equal(t, tc.want, machine)
			info, err := buildinfo.Read(bytes.NewReader(program))
			require.NoError(t, err)
			built := map[string]string{}
			for _, s := range info.Settings {
				built[s.Key] = s.Value
			}
			require.Equal(t, tc.platform, built["GOOS"]+"/"+built["GOARCH"])
			require.Equal(t, "0", built["CGO_ENABLED"])
			require.Contains(t, string(program), newVersion)
			require.Equal(t, tc.program != "snapcache", bytes.Contains(program, []byte("no agent runs on Windows")))

			notices := string(files["snapcache/NOTICES.txt"].data)
			bom := string(harness.ReadFile(t, filepath.Join(dir, "snapcache-"+strings.ReplaceAll(tc.platform, "/", "-")+".cdx.json")))
			for _, module := range info.Deps {
				require.Contains(t, notices, module.Path+" "+module.Version+": ")
				require.Contains(t, bom, module.Path)
			}
		})
	}
}

func machO(r io.ReaderAt) (any, error) {
	f, err := macho.NewFile(r)
	if err != nil {
		return nil, err
	}
	return f.Cpu, nil
}

// unpackArchive returns the files in an archive by their names.
func unpackArchive(t *testing.T, path string) map[string]packed {
	t.Helper()
	data := harness.ReadFile(t, path)
	files := map[string]packed{}
	if strings.HasSuffix(path, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		for _, f := range z.File {
			content, err := fs.ReadFile(z, f.Name)
			require.NoError(t, err)
			files[f.Name] = packed{f.Mode(), content}
		}
		return files
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		require.Equal(t, []any{"root", "root", 0, 0}, []any{h.Uname, h.Gname, h.Uid, h.Gid}, h.Name)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		files[h.Name] = packed{h.FileInfo().Mode(), content}
	}
}

// TestPlugin installs the archive of this machine with krew, as a user of kubectl does, and reads through
// kubectl the cache of an agent, which is the unpacked program. krew verifies the manifest of all platforms.
func TestPlugin(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "snapcache.yaml") // krew wants the plugin's name
	require.NoError(t, os.WriteFile(manifest, harness.ReadFile(t, filepath.Join(dist(t, newVersion), "snapcache.krew.yaml")), 0o600))
	t.Run("manifest", func(t *testing.T) { requireManifest(t, manifest) })

	root := t.TempDir()
	krew := exec.CommandContext(t.Context(), krewTool(t, "krew"), "install",
		"--manifest="+manifest, "--archive="+filepath.Join(dist(t, newVersion), "snapcache-linux-amd64.tar.gz"))
	krew.Env = append(harness.Environment(root), "KREW_ROOT="+root)
	harness.Output(t, krew)

	cp := newControlPlane(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "agent.yaml")
	text := fmt.Sprintf("%skubeconfig: %s\nlocalAPI:\n  socket: %s/agent.sock\n", agentConfig, harness.Kubeconfig(t, cp, controlplane.Reader), dir)
	require.NoError(t, os.WriteFile(config, []byte(strings.Replace(text, "store:\n", "store:\n  path: "+dir+"/cache.db\n", 1)), 0o600))
	plugin := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), cp.KubectlPath(), append([]string{"snapcache"}, args...)...)
		cmd.Env = append(harness.Environment(dir), "SNAPCACHE_CONFIG="+config)
		cmd.Env[1] = "PATH=" + filepath.Join(root, "bin") + ":" + os.Getenv("PATH")
		return cmd
	}
	agent := harness.Start(t, plugin("run"))
	deadline := time.Now().Add(patience)
	for {
		var s localapi.Status
		out, err := plugin("status", "-o", "json").Output()
		if err == nil {
			require.NoError(t, json.Unmarshal(out, &s), "%s", out)
			if len(s.Collections) == 1 && s.Collections[0].CaughtUp {
				break
			}
		}
		require.True(t, time.Now().Before(deadline) && agent.Running(), "the agent never caught up: %s", out)
		time.Sleep(pollEvery)
	}
	want := harness.Kubectl(t, cp, "get", "configmaps", "-n", "shop", "-o", "name")
	got := func(args ...string) string { return string(harness.Output(t, plugin(args...))) }
	require.Equal(t, string(want), got("get", "configmaps", "-n", "shop", "-o", "name"))
	require.NoError(t, agent.Stop())
	require.Equal(t, string(want), got("get", "configmaps", "-n", "shop", "-o", "name"), "from the file")

	for _, args := range [][]string{{"version"}, {"--version"}} {
		require.Contains(t, got(args...), newVersion)
	}
	require.Contains(t, got("get", "--help"), "kubectl snapcache get TYPE")
}

// requireManifest has krew check the manifest, which has to name each archive and its checksum.
func requireManifest(t *testing.T, manifest string) {
	t.Helper()
	output(t, krewTool(t, "validate-krew-manifest"), "-manifest", manifest, "-skip-install")
	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector    struct{ MatchLabels map[string]string }
				URI, Sha256 string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(harness.ReadFile(t, manifest), &plugin))
	require.Equal(t, newVersion, plugin.Spec.Version)
	sums := string(harness.ReadFile(t, filepath.Join(dist(t, newVersion), "SHA256SUMS")))
	var platforms []string
	for _, p := range plugin.Spec.Platforms {
		name := p.Selector.MatchLabels["os"] + "-" + p.Selector.MatchLabels["arch"]
		platforms = append(platforms, name)
		file, ok := strings.CutPrefix(p.URI, "https://github.com/snapcache/snapcache/releases/download/"+newVersion+"/")
		require.True(t, ok, p.URI)
		require.True(t, strings.HasPrefix(file, "snapcache-"+name+"."), file)
		require.Contains(t, sums, p.Sha256+"  "+file+"\n")
	}
	require.ElementsMatch(t, []string{"linux-amd64", "darwin-amd64", "darwin-arm64", "windows-amd64"}, platforms)
}

// krewTool returns the path of a program of krew, which is built the first time.
func krewTool(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(output(t, "go", "-C", filepath.Join(harness.Root(t), "test", "node", "krew"), "tool", "-n", name))
}
