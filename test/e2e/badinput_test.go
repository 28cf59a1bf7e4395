package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

const twoResources = "- resource: configmaps\n- resource: pods"

var twoIDs = []string{"configmaps", "pods"}

// The documented exit codes.
const (
	codeFailure   = 1
	codeUsage     = 2
	codeNotSynced = 3
	codeCorrupt   = 4
)

// TestAgentStartErrors starts agents that can't work, on a new database and on one that holds a cache.
// Each must exit with the right code, print one line with the cause and the remedy, and leave the
// database as it was.
func TestAgentStartErrors(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	good := settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources}
	cache := newCache(t, cp)
	write := func(t *testing.T, x *site, name, text string) string {
		path := filepath.Join(x.dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, x *site)
		code  int
		words []string
	}{
		{"no kubeconfig there", func(_ *testing.T, x *site) {
			x.kubeconfig = filepath.Join(x.dir, "none")
		}, codeUsage, []string{"/none", "no such file", "--kubeconfig"}},
		{"kubeconfig is a folder", func(_ *testing.T, x *site) {
			x.kubeconfig = x.dir
		}, codeUsage, []string{"is a directory"}},
		{"no right to read the kubeconfig", func(t *testing.T, x *site) {
			if os.Geteuid() == 0 {
				t.Skip("root may read everything")
			}
			x.kubeconfig = write(t, x, "bad.kubeconfig", "apiVersion: v1")
			require.NoError(t, os.Chmod(x.kubeconfig, 0))
		}, codeUsage, []string{"bad.kubeconfig", "permission denied"}},
		{"empty kubeconfig", func(t *testing.T, x *site) {
			x.kubeconfig = write(t, x, "bad.kubeconfig", "")
		}, codeUsage, []string{"bad.kubeconfig", "empty"}},
		{"garbage as kubeconfig", func(t *testing.T, x *site) {
			x.kubeconfig = write(t, x, "bad.kubeconfig", "\x00\x01{{{ this is: no: kubeconfig")
		}, codeUsage, []string{"bad.kubeconfig", "kubeconfig"}},
		{"no context in the kubeconfig", func(t *testing.T, x *site) {
			x.kubeconfig = changed(t, x, func(c *clientcmdapi.Config) { c.CurrentContext = "" })
		}, codeUsage, []string{"current-context"}},

		{"no configuration there", func(t *testing.T, x *site) {
			require.NoError(t, os.Remove(x.config))
		}, codeUsage, []string{"agent.yaml", "no such file"}},
		{"unknown field", func(_ *testing.T, x *site) {
			x.configure(settings{kubeconfig: x.kubeconfig, resources: "- resource: pods\n  labelSelektor: a=b"})
		}, codeUsage, []string{"agent.yaml:14", "labelSelektor"}},
		{"bad selector", func(_ *testing.T, x *site) {
			x.configure(settings{kubeconfig: x.kubeconfig, resources: "- resource: pods\n  labelSelector: 'a b'"})
		}, codeUsage, []string{"agent.yaml:14", "resources[0].labelSelector"}},
		{"secrets without consent", func(_ *testing.T, x *site) {
			x.configure(settings{kubeconfig: x.kubeconfig, resources: "- resource: pods\n- resource: secrets"})
		}, codeUsage, []string{"secrets", "I understand that Secrets will be stored unencrypted on this node's disk"}},

		{"metrics port in use", func(t *testing.T, x *site) {
			l, err := net.Listen("tcp", x.metrics)
			require.NoError(t, err)
			t.Cleanup(func() { l.Close() })
		}, codeFailure, []string{"metrics", "address already in use", "metrics.address"}},
		{"no socket but a file", func(t *testing.T, x *site) {
			write(t, x, "agent.sock", "precious")
		}, codeFailure, []string{"agent.sock", "move it away"}},
		{"database is a folder", func(t *testing.T, x *site) {
			x.db = filepath.Join(x.dir, "folder")
			require.NoError(t, os.Mkdir(x.db, 0o700))
			x.configure(settings{kubeconfig: x.kubeconfig, resources: twoResources})
		}, codeFailure, []string{"folder"}},
	} {
		for _, cached := range []bool{false, true} {
			name := c.name + ", nothing cached"
			if cached {
				name = c.name + ", with a cache"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				x := newSite(t, good)
				if cached {
					x.putDatabase(cache)
				}
				before := *x
				c.spoil(t, x)
				r := x.run(x.runArgs()...)
				require.Equal(t, c.code, r.Code, r.Stderr)
				require.Empty(t, r.Stdout)
				requireOneLine(t, r.Stderr, c.words...)
				if !cached {
					return
				}
				if !strings.Contains(r.Stderr, "database opened") {
					requireSameFile(t, cache, before.db)
				}
				x = &before
				x.configure(good)
				for _, id := range twoIDs {
					requireSame(t, id, onServer(t, cp, id), x.cached(id))
				}
			})
		}
	}
}

// TestServerRefusesTheAgent starts agents that the server rejects, or that must not trust the
// server. Without a cache that can only be a misconfiguration, so the agent exits; with a cache it
// goes on serving it and reports the error.
func TestServerRefusesTheAgent(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	for _, c := range []struct {
		name   string
		change func(*testing.T, *clientcmdapi.Config)
		words  []string
	}{
		{"wrong CA", func(t *testing.T, cfg *clientcmdapi.Config) {
			for _, cluster := range cfg.Clusters {
				cluster.CertificateAuthorityData = otherCA(t)
			}
		}, []string{"not signed by the CA in the kubeconfig"}},
		{"token that is not known any more", func(_ *testing.T, cfg *clientcmdapi.Config) {
			for _, user := range cfg.AuthInfos {
				user.Token = "expired-token"
			}
		}, []string{"does not accept the credential (401)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources})
			good := x.kubeconfig
			bad := changed(t, x, func(cfg *clientcmdapi.Config) { c.change(t, cfg) })

			x.kubeconfig = bad
			r := x.run(x.runArgs()...)
			require.Equal(t, codeFailure, r.Code, r.Stderr)
			requireOneLine(t, r.Stderr, c.words...)
			require.NotContains(t, r.Stderr, "expired-token")

			x.kubeconfig = good
			a := x.start()
			a.requireServers(cp, twoIDs...)
			a.stop()

			x.kubeconfig = bad
			a = x.start()
			s := a.await("the problem is reported", func(s *localapi.Status) string {
				if s.Agent.Problem == "" {
					return "no problem"
				}
				return ""
			})
			require.False(t, s.Agent.Connected)
			for _, word := range c.words {
				require.Contains(t, s.Agent.Problem, word)
			}
			for _, id := range twoIDs {
				require.True(t, collections(s)[id].Synced, id)
				requireSame(t, id, onServer(t, cp, id), x.cached(id))
			}
			a.stop()

			x.kubeconfig = good
			a = x.start()
			a.requireServers(cp, twoIDs...)
			for id, c := range a.awaitCaughtUp(anywhere(twoIDs...)) {
				require.Zero(t, c.Lists, id)
			}
			a.stop()
		})
	}
}

// TestUnusableDatabase starts agents on files that are no database. Each file is set aside
// unchanged under another name, and the agent starts over. Readers leave it alone.
func TestUnusableDatabase(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	cache := newCache(t, cp)
	for _, tc := range []struct {
		name    string
		garbage []byte
	}{
		{"text", []byte("this is no database\n")},
		{"zeros", make([]byte, 100_000)},
		{"empty", []byte{}},
		{"noise", noise(300_000)},
		{"one page", cache[:4096]},
		{"cut short", cache[:100_000]}, // far less than the objects take
		// The two meta pages, from which all others are found, are left.
		{"noise behind the head", append(cache[:4*4096:4*4096], noise(len(cache)-4*4096)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources})
			x.putDatabase(tc.garbage)
			r := x.run("dump", "pods", "--db", x.db, "--socket", x.socket)
			require.Equal(t, codeCorrupt, r.Code, r.Stderr)
			require.Empty(t, r.Stdout)
			requireOneLine(t, r.Stderr, "cache.db")
			requireSameFile(t, tc.garbage, x.db)

			a := x.start()
			a.requireServers(cp, twoIDs...)
			s := a.await("status", func(*localapi.Status) string { return "" })
			require.Contains(t, s.Store.Verdict, "quarantined")
			for id, c := range a.awaitCaughtUp(anywhere(twoIDs...)) {
				require.EqualValues(t, 1, c.Lists, id)
			}
			a.stop()
			aside, err := filepath.Glob(x.db + ".*")
			require.NoError(t, err)
			require.Len(t, aside, 1, "the file should have been set aside")
			requireSameFile(t, tc.garbage, aside[0])
			require.Contains(t, s.Store.Verdict, aside[0])
		})
	}
}

// TestCorruptPage overwrites the pages of a database, one at a time. Readers print what is readable
// and report with their exit code that it is incomplete; an agent starts and catches up.
func TestCorruptPage(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	cache := newCache(t, cp)
	const page = 4096
	used := len(bytes.TrimRight(cache, "\x00"))
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources})
	corrupt := 0
	for at := 2 * page; at < used; at += page { // from behind the two meta pages
		bad := bytes.Clone(cache)
		copy(bad[at:], noise(page))
		x.putDatabase(bad)
		r := x.run("dump", "-o", "name", "--config", x.config)
		reported := 0
		for _, line := range lines([]byte(r.Stderr)) {
			if strings.HasPrefix(line, "snapcache: ") {
				reported++
			}
		}
		switch {
		case r.Code == 0 && r.Stderr == "":
			continue
		case r.Code != codeCorrupt || reported != len(lines([]byte(r.Stderr))):
			t.Errorf("page %d of %d: dump ended with %d: %.500s", at/page, used/page, r.Code, r.Stderr)
			continue
		}
		requireSameFile(t, bad, x.db)
		if corrupt++; corrupt%8 != 1 {
			continue
		}
		a := x.start()
		a.awaitCaughtUp(anywhere(twoIDs...))
		a.stop()
	}
	require.Greater(t, corrupt, 20, "pages that matter")
}

// TestDatabaseInUse starts a second agent on a database, and reads the database without the agent's
// socket.
func TestDatabaseInUse(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources})
	a := x.start()
	a.requireServers(cp, twoIDs...)

	same := x.run(x.runArgs()...)
	require.Equal(t, codeFailure, same.Code, same.Stderr)
	requireOneLine(t, same.Stderr, "in use by another process", "stop the other")

	second := newSite(t, settings{kubeconfig: x.kubeconfig, resources: twoResources})
	second.db = x.db
	second.configure(settings{kubeconfig: x.kubeconfig, resources: twoResources})
	r := second.run(second.runArgs()...)
	require.Equal(t, codeFailure, r.Code, r.Stderr)
	requireOneLine(t, r.Stderr, "in use by another process", "store.path")

	// No agent listens on the second socket, so neither way works.
	for _, args := range [][]string{{"dump", "pods"}, {"inspect"}, {"inspect", "pods", "--keys"}} {
		r := second.run(append(args, "--config", second.config)...)
		require.Equal(t, codeFailure, r.Code, "%q: %s", args, r.Stderr)
		require.Empty(t, r.Stdout, "%q", args)
		requireOneLine(t, r.Stderr, "in use", "--socket")
	}
	a.requireServers(cp, twoIDs...)
	a.stop()
}

// TestReaderErrors runs the readers with requests that they can't answer.
func TestReaderErrors(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources})

	// Before there is a database.
	for _, args := range [][]string{{"dump", "pods"}, {"inspect"}} {
		r := x.run(append(args, "--config", x.config)...)
		require.Equal(t, codeFailure, r.Code, "%q: %s", args, r.Stderr)
		requireOneLine(t, r.Stderr, "no agent", "no database", "snapcache run")
	}
	r := x.run("status", "--config", x.config)
	require.Equal(t, codeFailure, r.Code, r.Stderr)
	requireOneLine(t, r.Stderr, "no agent", "snapcache inspect")
	require.NoFileExists(t, x.db, "readers make no files")

	a := x.start()
	a.requireServers(cp, twoIDs...)
	for _, from := range []string{"socket", "file"} {
		if from == "file" {
			a.stop()
		}
		for _, c := range []struct {
			args  []string
			words []string
		}{
			{[]string{"dump", "services"}, []string{"services"}},
			{[]string{"dump", "pods", "-o", "xml"}, []string{"xml"}},
			{[]string{"dump", "pods", "-l", "a b"}, []string{"a b"}},
			{[]string{"dump", "pods", "--nothing"}, []string{"nothing"}},
			{[]string{"inspect", "pods", "--index", "nothing"}, []string{"nothing"}},
			{[]string{"inspekt"}, []string{"inspekt"}},
		} {
			r := x.run(append(c.args, "--config", x.config)...)
			require.Equal(t, codeUsage, r.Code, "%q from the %s: %s", c.args, from, r.Stderr)
			require.Empty(t, r.Stdout, "%q from the %s", c.args, from)
			requireOneLine(t, r.Stderr, c.words...)
		}
	}
}

// newCache returns the database of an agent that had caught up.
func newCache(t *testing.T, cp *controlplane.ControlPlane) []byte {
	t.Helper()
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources})
	a := x.start()
	a.requireServers(cp, twoIDs...)
	a.stop()
	return harness.ReadFile(t, x.db)
}

// putDatabase writes b as the agent's database.
func (x *site) putDatabase(b []byte) {
	x.t.Helper()
	require.NoError(x.t, os.MkdirAll(filepath.Dir(x.db), 0o700))
	require.NoError(x.t, os.WriteFile(x.db, b, 0o600))
}

// requireOneLine checks that stderr has exactly one error line of the program, and that it contains
// these words. Log lines around it are ignored.
func requireOneLine(t *testing.T, stderr string, words ...string) {
	t.Helper()
	var own []string
	for _, line := range lines([]byte(stderr)) {
		if strings.HasPrefix(line, "snapcache:") {
			own = append(own, line)
		}
	}
	require.Len(t, own, 1, "lines of the program's on standard error:\n%s", stderr)
	for _, word := range words {
		require.Contains(t, own[0], word)
	}
}

// changed writes a changed copy of the site's kubeconfig.
func changed(t *testing.T, x *site, change func(*clientcmdapi.Config)) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(x.kubeconfig)
	require.NoError(t, err)
	change(cfg)
	path := filepath.Join(x.dir, "changed.kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*cfg, path))
	return path
}

// otherCA returns the certificate of an authority that signed nothing.
func otherCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func requireSameFile(t *testing.T, want []byte, path string) {
	t.Helper()
	got := harness.ReadFile(t, path)
	if string(got) != string(want) {
		t.Fatalf("%s was changed: it has %d bytes and had %d", path, len(got), len(want))
	}
}
