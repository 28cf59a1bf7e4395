package node

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// imageUser is the user of the image.
const imageUser = 65532

// TestImage checks the image that `make image` makes: its layout, its platforms, and that the same
// program gives the same image. As root it runs a hub from it.
func TestImage(t *testing.T) {
	index := buildImage(t)
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Equal(t, newVersion, manifest.Annotations["org.opencontainers.image.version"])
	require.Len(t, manifest.Manifests, 3)
	images, roots := map[string]v1.Image{}, map[string]string{}
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		require.NoError(t, err)
		images[m.Platform.String()], roots[m.Platform.String()] = image, unpack(t, image)
	}
	for _, tc := range []struct {
		name    string
		machine elf.Machine
	}{
		{"linux/amd64", elf.EM_X86_64},
		{"linux/arm64", elf.EM_AARCH64},
		{"linux/arm/v7", elf.EM_ARM},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Contains(t, images, tc.name)
			file, err := images[tc.name].ConfigFile()
			require.NoError(t, err)
			require.Equal(t, tc.name, file.Platform().String())
			require.Equal(t, []string{"/snapcache"}, file.Config.Entrypoint)
			require.Equal(t, "65532:65532", file.Config.User)
			require.Regexp(t, "^[0-9a-f]{40}$", file.Config.Labels["org.opencontainers.image.revision"])
			program, err := elf.Open(filepath.Join(roots[tc.name], "snapcache"))
			require.NoError(t, err)
			defer program.Close()
			require.Equal(t, tc.machine, program.Machine)
		})
	}
	t.Run("the same again", func(t *testing.T) {
		again, err := buildImage(t, "amd64").IndexManifest()
		require.NoError(t, err)
		require.Len(t, again.Manifests, 1)
		digest, err := images["linux/amd64"].Digest()
		require.NoError(t, err)
		require.Equal(t, digest, again.Manifests[0].Digest)
	})
	t.Run("a hub", func(t *testing.T) {
		needs(t, true)
		hub := &container{root: roots["linux/amd64"]}
		file, err := images["linux/amd64"].ConfigFile()
		require.NoError(t, err)
		hub.env = file.Config.Env
		require.Contains(t, string(hub.run(t, "version")), newVersion)
		hub.serve(t)
	})
}

// buildImage builds the image for some architectures, or for all, and returns its index.
func buildImage(t *testing.T, arches ...string) v1.ImageIndex {
	t.Helper()
	root := harness.Root(t)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "packaging", "image.sh"), arches...)
	cmd.Env = append(os.Environ(), "DIST="+dir, "VERSION="+newVersion)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "image.sh:\n%s", out)
	f, err := os.Open(filepath.Join(dir, "snapcache-image.tar"))
	require.NoError(t, err)
	defer f.Close()
	at := filepath.Join(dir, "layout")
	extract(t, f, at)
	index, err := layout.ImageIndexFromPath(at)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1, "tools that copy images take one")
	require.Equal(t, newVersion, manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	index, err = index.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return index
}

// unpack returns the root file system of an image.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	files := mutate.Extract(image)
	defer files.Close()
	dir := filepath.Join(t.TempDir(), "root")
	extract(t, files, dir)
	return dir
}

// extract extracts a tar file, with owners if this is root.
func extract(t *testing.T, from io.Reader, dir string) {
	t.Helper()
	for files := tar.NewReader(from); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o755))
		} else {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			var content bytes.Buffer
			_, err = io.Copy(&content, files)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, content.Bytes(), 0o600))
		}
		require.NoError(t, os.Chmod(path, h.FileInfo().Mode()))
		if os.Geteuid() == 0 {
			require.NoError(t, os.Chown(path, h.Uid, h.Gid))
		}
	}
}

// container runs programs in the root file system of an image, as a plain process of its user.
type container struct {
	root string
	env  []string
}

func (c *container) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/snapcache", args...)
	cmd.Dir, cmd.Env = "/", c.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser}}
	return cmd
}

// run runs a command, which must succeed, and returns its output.
func (c *container) run(t *testing.T, args ...string) []byte {
	t.Helper()
	return harness.Output(t, c.command(t.Context(), args...))
}

// write writes a file that the user can read, as a volume of a pod has it.
func (c *container) write(t *testing.T, path string, content []byte) {
	t.Helper()
	path = filepath.Join(c.root, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, content, 0o644))
}

// requireClean fails if the user has written files outside of the volumes.
func (c *container) requireClean(t *testing.T) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(c.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		inside := strings.TrimPrefix(path, c.root)
		written := info.Sys().(*syscall.Stat_t).Uid == imageUser
		if written && !strings.HasPrefix(inside, "/var/lib/snapcache") && !strings.HasPrefix(inside, "/run/snapcache") {
			t.Errorf("%s: in a pod the root file system is read-only", inside)
		}
		return nil
	}))
}
