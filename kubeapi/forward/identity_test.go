package forward

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/snapcache/snapcache/access"
)

// pair returns a client certificate and its key, in one file as a kubelet writes them.
func pair(t *testing.T, name string, groups []string, ends time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Unix(0, 0), NotAfter: ends, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), private...)
}

const kubeletConfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6445"}}]
users: [{name: u, user: {client-certificate: current.pem, client-key: current.pem}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// certFiles are the files of an identity.
type certFiles struct {
	t   *testing.T
	dir string
}

func newFiles(t *testing.T, kubeconfig string) certFiles {
	f := certFiles{t, t.TempDir()}
	require.NoError(t, os.WriteFile(f.kubeconfig(), []byte(kubeconfig), 0o600))
	return f
}

// withUser returns files whose kubeconfig has a user with these credentials, in YAML.
func withUser(t *testing.T, credentials string) certFiles {
	t.Helper()
	return newFiles(t, fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6445"}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, credentials))
}

func (f certFiles) kubeconfig() string { return filepath.Join(f.dir, "kubeconfig") }

// rotate replaces the certificate as a kubelet does: by a link to a new file.
func (f certFiles) rotate(content []byte) {
	f.t.Helper()
	next := filepath.Join(f.dir, fmt.Sprint(time.Now().UnixNano(), ".pem"))
	require.NoError(f.t, os.WriteFile(next, content, 0o600))
	require.NoError(f.t, os.Symlink(next, next+".link"))
	require.NoError(f.t, os.Rename(next+".link", filepath.Join(f.dir, "current.pem")))
}

func node(name string, groups ...string) *access.Caller {
	return &access.Caller{Certificate: true, User: authenticationv1.UserInfo{Username: name, Groups: append(groups, "system:authenticated")}}
}

// TestIdentity: a caller with a certificate is forwarded with one of the same user and groups, as it is
// at the time, and refused without.
func TestIdentity(t *testing.T) {
	year := time.Now().AddDate(1, 0, 0)
	kubelet := pair(t, "system:node:edge-1", []string{"system:nodes", "other"}, year)
	f := newFiles(t, kubeletConfig)
	f.rotate(kubelet)
	var seen []*x509.Certificate
	var header http.Header
	s := newSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen, header = r.TLS.PeerCertificates, r.Header }),
		func(o *Options) { o.Kubeconfigs = []string{filepath.Join(f.dir, "absent"), f.kubeconfig()} })
	send := func(c *access.Caller, upgrade bool) int {
		t.Helper()
		s.caller.Store(c)
		seen, header = nil, nil
		r := request(t, "POST", s.proxy.URL+"/x", nil)
		if upgrade {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "SPDY/3.1")
		}
		a, err := client(t, s.proxy, "http/1.1").Do(r)
		require.NoError(t, err)
		if a.StatusCode == http.StatusForbidden {
			got := statusOf(t, a)
			require.Contains(t, got.Message, "kubernetesAPI.forward.identities")
			require.Contains(t, got.Message, c.User.Username)
			require.Nil(t, header, "nothing is sent")
			require.False(t, s.Reaches(requestOf(t, s)))
		} else {
			require.NoError(t, a.Body.Close())
			require.Empty(t, header.Get("Authorization"), "the certificate decides")
			require.Len(t, seen, 1)
			require.Equal(t, c.User.Username, seen[0].Subject.CommonName)
			require.True(t, s.Reaches(requestOf(t, s)))
		}
		return a.StatusCode
	}
	of := func(content []byte) []byte {
		block, _ := pem.Decode(content)
		return block.Bytes
	}
	for _, upgrade := range []bool{false, true} {
		require.Equal(t, http.StatusOK, send(node("system:node:edge-1", "other", "system:nodes"), upgrade))
		require.Equal(t, of(kubelet), seen[0].Raw)
		for _, c := range []*access.Caller{
			node("system:node:edge-2", "system:nodes", "other"), node("system:node:edge-1", "system:nodes"),
			node("system:node:edge-1", "system:nodes", "other", "system:masters"), node("system:node:edge-1"), node(""),
			{Certificate: true, User: authenticationv1.UserInfo{Username: "system:node:edge-1", UID: "1", Groups: []string{"other", "system:nodes", "system:authenticated"}}},
		} {
			require.Equal(t, http.StatusForbidden, send(c, upgrade), "%v", c.User)
		}
	}
	require.Contains(t, s.log.String(), "absent")

	// The next certificate is used at once, over a connection of its own.
	caller := node("system:node:edge-1", "system:nodes", "other")
	next := pair(t, "system:node:edge-1", []string{"system:nodes", "other"}, year)
	f.rotate(next)
	require.Equal(t, http.StatusOK, send(caller, false))
	require.Equal(t, of(next), seen[0].Raw)

	// That of another user is not used for this one, but for the other.
	f.rotate(pair(t, "system:node:edge-2", []string{"system:nodes", "other"}, year))
	require.Equal(t, http.StatusForbidden, send(caller, false))
	require.Equal(t, http.StatusForbidden, send(caller, true))
	require.Equal(t, http.StatusOK, send(node("system:node:edge-2", "system:nodes", "other"), false))

	for _, bad := range [][]byte{
		[]byte("nothing"), of(kubelet), pair(t, "", []string{"system:nodes"}, year), pair(t, "system:node:edge-1", []string{"system:nodes", "other"}, time.Unix(1000, 0)),
	} {
		f.rotate(bad)
		require.Equal(t, http.StatusForbidden, send(caller, false))
	}
	f.rotate(kubelet)
	require.Equal(t, http.StatusOK, send(caller, false))
	require.NoError(t, os.Remove(filepath.Join(f.dir, "current.pem")))
	require.Equal(t, http.StatusForbidden, send(caller, false), "without the file there is no certificate")
	block, _ := pem.Decode(kubelet[len(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: of(kubelet)})):])
	require.NotContains(t, s.log.String(), string(block.Bytes))
}

// TestIdentity_WrongClock: a certificate that has not ended is used again once the clock is right.
func TestIdentity_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	f := newFiles(t, kubeletConfig)
	f.rotate(pair(t, "system:node:edge-1", nil, time.Now().Add(year)))
	x, user := &identity{kubeconfig: f.kubeconfig()}, node("system:node:edge-1")
	config := &rest.Config{Host: "https://127.0.0.1:6443"}
	to := &server{config: config, sessions: config}
	for _, off := range []time.Duration{-26 * year, -2 * time.Hour, 2 * time.Hour, 14 * year} {
		found, err := x.route(to, user, time.Now().Add(off))
		if off > year {
			require.ErrorContains(t, err, "the certificate ended on")
		} else {
			require.NoError(t, err)
			require.NotNil(t, found)
		}
		found, err = x.route(to, user, time.Now())
		require.NoError(t, err, "right again")
		require.NotNil(t, found)
	}
}

// TestIdentityWithoutCertificate: a kubeconfig with another credential is of no use: the agent must not
// send a credential that is not the caller's.
func TestIdentityWithoutCertificate(t *testing.T) {
	for _, user := range []string{"token: secret-of-another", "username: u, password: secret-of-another", "tokenFile: /etc/hostname", ""} {
		f := withUser(t, user)
		s := newSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Error("a request was sent") }),
			func(o *Options) { o.Kubeconfigs = []string{f.kubeconfig()} })
		s.caller.Store(node("u"))
		a, err := client(t, s.proxy, "h2").Do(request(t, "GET", s.proxy.URL+"/x", nil))
		require.NoError(t, err)
		require.NotContains(t, statusOf(t, a).Message, "secret")
		require.Equal(t, http.StatusForbidden, a.StatusCode)
		require.NotContains(t, s.log.String(), "secret")
		require.Contains(t, s.log.String(), "it has no client certificate")
	}
}

// TestIdentityWithToken: a caller with a token is forwarded without any certificate.
func TestIdentityWithToken(t *testing.T) {
	f := newFiles(t, kubeletConfig)
	f.rotate(pair(t, "user", nil, time.Now().AddDate(1, 0, 0)))
	var state *tls.ConnectionState
	s := newSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { state = r.TLS }),
		func(o *Options) { o.Kubeconfigs = []string{f.kubeconfig()} })
	a, err := client(t, s.proxy, "h2").Do(request(t, "GET", s.proxy.URL+"/x", nil))
	require.NoError(t, err)
	require.NoError(t, a.Body.Close())
	require.Empty(t, state.PeerCertificates)
}
