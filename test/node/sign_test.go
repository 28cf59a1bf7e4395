package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestSignature signs a release with a key that is thrown away, and verifies it with the commands of
// docs/install.md: a changed byte of a file, of the checksums or of the signature is found, and so is another
// signer.
func TestSignature(t *testing.T) {
	needs(t, false, "ssh-keygen", "make")
	dir := t.TempDir()
	for name, data := range map[string]string{"snapcache_1_amd64.deb": "a package", "snapcache-linux-amd64.tar.gz": "an archive"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(checksums(t, dir)), 0o600))
	keys := t.TempDir()
	allowed := filepath.Join(keys, "allowed_signers")
	newKey := func(name string) (key, public string) {
		key = filepath.Join(keys, name)
		output(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key)
		return key, string(harness.ReadFile(t, key+".pub"))
	}
	owner, public := newKey("owner")
	require.NoError(t, os.WriteFile(allowed, []byte("maintainers@snapcache.dev "+public), 0o600))
	sign := func(key string) error {
		out, err := exec.CommandContext(t.Context(), "make", "-C", harness.Root(t), "sign", "KEY="+key, "DIST="+dir).CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	verify := func() error {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", verifyCommands(t))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "ALLOWED="+allowed)
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	require.Error(t, sign(filepath.Join(keys, "none")))
	require.NoError(t, sign(owner))
	require.NoError(t, verify())
	require.NoFileExists(t, filepath.Join(dir, filepath.Base(owner)))

	for _, name := range []string{"snapcache_1_amd64.deb", "SHA256SUMS", "SHA256SUMS.sig"} {
		path := filepath.Join(dir, name)
		original := harness.ReadFile(t, path)
		changed := append([]byte{}, original...)
		changed[len(changed)/2] ^= 1
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		require.Error(t, verify(), "%s with a changed byte", name)
		if name != "SHA256SUMS.sig" {
			require.Error(t, sign(owner), "what is signed has to be complete: %s", name)
			require.NoError(t, os.WriteFile(path, original, 0o600))
			require.NoError(t, sign(owner))
			continue
		}
		require.NoError(t, os.WriteFile(path, original, 0o600))
	}
	require.NoError(t, verify())

	other, _ := newKey("other")
	require.NoError(t, sign(other))
	require.Error(t, verify(), "signed by another key")
}

// verifyCommands returns the lines of docs/install.md that verify a release.
func verifyCommands(t *testing.T) string {
	t.Helper()
	_, section, found := strings.Cut(string(harness.ReadFile(t, filepath.Join(harness.Root(t), "docs", "install.md"))), "\n## Verifying\n")
	require.True(t, found)
	var commands []string
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, strings.TrimSpace(command))
		} else if len(commands) > 0 {
			break
		}
	}
	require.NotEmpty(t, commands)
	return strings.ReplaceAll(strings.Join(commands, "\n"), "allowed_signers", "$ALLOWED")
}
