package kubernetes

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/config"
)

// following runs the tasks that keep what is known of the cluster current, until the test ends.
func (w *world) following() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.x.follow(ctx, w.cluster) }()
	w.t.Cleanup(func() { cancel(); <-done })
	// The keys were read once by newWorld. A timer of a fake clock needs a step, also if it is due.
	require.Eventually(w.t, func() bool { w.clock.Step(0); return w.times(keySet) == 2 }, patience, pollEvery)
}

const (
	patience  = 30 * time.Second
	pollEvery = 5 * time.Millisecond
)

// TestFailedReviewsBackOff: a server that refuses the questions is asked once in a while about each
// caller, and the log has that once a minute.
func TestFailedReviewsBackOff(t *testing.T) {
	w := newWorld(t)
	w.populate()
	var out bytes.Buffer
	w.x.log = slog.New(slog.NewTextHandler(&out, nil))
	w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
		http.Error(rw, "no", http.StatusForbidden)
		return true
	}
	r := requestOf(w.token("k1", "j1"))
	for range 50 {
		require.NoError(t, w.pass(r), "by the keys and the cached RBAC objects")
		require.False(t, w.may("bob", "list", "secrets"))
	}
	require.Equal(t, 1, w.times(tokenReviews))
	require.Equal(t, 2, w.times(accessReviews))
	require.Equal(t, 1, strings.Count(out.String(), "level=WARN"), out.String())
	require.Contains(t, out.String(), "the server can't be asked about a caller")
	w.mu.Lock()
	w.answer = nil
	w.mu.Unlock()
	w.clock.Step(10 * time.Second)
	require.True(t, w.may("bob", "list", "secrets"), "the server can be asked again")
}

// TestRotatedKeys: when the server accepts a token that is signed by a new key, the keys are read again, at
// most once a minute, so that such tokens are accepted without it.
func TestRotatedKeys(t *testing.T) {
	w := newWorld(t)
	w.populate()
	w.following()
	rotate := func(id string) {
		w.mu.Lock()
		w.keyID = id
		w.mu.Unlock()
		require.NoError(t, w.pass(requestOf(w.token(id, id))))
	}
	known := func(id string) func() bool {
		return func() bool { return len(w.callers.Keys().Set.Key(id)) == 1 }
	}
	rotate("k2")
	require.Eventually(t, known("k2"), patience, pollEvery)
	rotate("k3")
	require.Len(t, w.x.rotated, 1, "a second signing key is fetched only after the interval")
	require.False(t, known("k3")())
	require.Equal(t, 3, w.times(keySet))
	require.Eventually(t, func() bool { w.clock.Step(renewEvery); return known("k3")() }, patience, pollEvery)
	require.Equal(t, 4, w.times(keySet))
	require.Eventually(t, func() bool {
		kept, err := os.ReadFile(w.x.keysFile())
		return err == nil && strings.Contains(string(kept), `"k3"`)
	}, patience, pollEvery)
	w.disconnect()
	require.NoError(t, w.pass(requestOf(w.token("k3", "offline"))))
	require.Error(t, w.pass(requestOf(w.token("k4", "offline"))))
}

// authority returns an authority in PEM, and a request with a certificate that it has signed.
func authority(t *testing.T) ([]byte, *http.Request) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	sign := func(c, by *x509.Certificate) *x509.Certificate {
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), start.Add(-time.Hour), start.Add(1000*time.Hour)
		raw, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), key)
		require.NoError(t, err)
		out, err := x509.ParseCertificate(raw)
		require.NoError(t, err)
		return out
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca = sign(ca, ca)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.RemoteAddr = "127.0.0.1:40000"
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "system:node:edge-1"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca)}}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), r
}

// TestClientCA: the authorities of the server are kept while it publishes nothing, also over a restart, and
// given up when it publishes none.
func TestClientCA(t *testing.T) {
	ca, r := authority(t)
	w := newWorld(t)
	accepted := func() bool { _, err := w.callers.Caller(r); return err == nil }
	publish := func(data map[string]string) {
		w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != clientCA || data == nil {
				return false
			}
			return json.NewEncoder(rw).Encode(map[string]any{"data": data}) == nil
		}
		require.NoError(t, w.x.readClientCA(t.Context(), w.cluster))
	}
	publish(nil)
	require.False(t, accepted())
	publish(map[string]string{"client-ca-file": string(ca)})
	require.True(t, accepted())
	publish(nil)
	require.True(t, accepted())
	require.NoError(t, w.x.loadClientCA())
	require.True(t, accepted(), "after a restart")
	publish(map[string]string{"requestheader-client-ca-file": string(ca)})
	require.False(t, accepted())
	require.NoError(t, w.x.loadClientCA())
	require.False(t, accepted(), "after a restart")
}

// TestClientCAFile: the authorities are those of the file, also when it changes, and a file that can't be
// used changes nothing. What the server publishes does not count.
func TestClientCAFile(t *testing.T) {
	first, r1 := authority(t)
	second, r2 := authority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, first, 0o600))
	w := newWorld(t, func(c *config.AgentConfiguration) { c.KubernetesAPI.Access.ClientCAFile = file })
	w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == clientCA {
			t.Error("the server is asked for its authorities")
		}
		return false
	}
	accepted := func(r *http.Request) bool { _, err := w.callers.Caller(r); return err == nil }
	require.True(t, accepted(r1))
	require.False(t, accepted(r2))
	w.following()

	replace := func(pem []byte) {
		require.NoError(t, os.WriteFile(file+".new", pem, 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	look := func(until func() bool) {
		require.Eventually(t, func() bool { w.clock.Step(lookEvery); return until() }, patience, pollEvery)
	}
	replace(second)
	look(func() bool { return accepted(r2) })
	require.False(t, accepted(r1))
	for _, bad := range [][]byte{{}, []byte("-----BEGIN CERTIFICATE-----\n")} {
		replace(bad)
		require.Error(t, (&authorityFile{name: file, set: w.callers.SetClientCA}).read())
		require.True(t, accepted(r2), "the authorities before")
	}
	replace(append(first, second...))
	look(func() bool { return accepted(r1) })
	require.True(t, accepted(r2))

	require.NoError(t, os.Remove(file))
	missing := &authorityFile{name: file, set: w.callers.SetClientCA}
	require.ErrorContains(t, missing.read(), file)
}
