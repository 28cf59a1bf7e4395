package signed

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestRequest: the request has the content that the signer demands, and it is one alone, however long it
// waits. The log asks for its approval once.
func TestRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*Options)
		subject string
		dns     []string
		ips     []string
	}{
		"a kubelet's":    {func(*Options) {}, "CN=system:node:edge-1,O=system:nodes", []string{"edge-1"}, []string{"10.0.0.5"}},
		"another signer": {func(o *Options) { o.Signer, o.NodeName = "example.com/serving", "" }, "CN=snapcache", nil, []string{"10.0.0.5"}},
		"another signer, with a node": {func(o *Options) { o.Signer, o.Host = "example.com/serving", "localhost" },
			"CN=snapcache-edge-1", []string{"edge-1", "localhost"}, nil},
		"a long name": {func(o *Options) { o.NodeName, o.Host = strings.Repeat("a", 199)+".b", "::1" },
			"CN=system:node:" + strings.Repeat("a", 199) + ".b,O=system:nodes", []string{strings.Repeat("a", 199) + ".b"}, []string{"::1"}},
	} {
		test(t, name, func(w *world) {
			tc.change(&w.opts)
			w.start()
			w.logged(1, "kubectl certificate approve snapcache-")
			r := w.the()
			require.Equal(t, w.opts.Signer, r.Spec.SignerName)
			require.Equal(t, []certificatesv1.KeyUsage{"digital signature", "server auth"}, r.Spec.Usages)
			require.LessOrEqual(t, len(r.Name), 253)
			block, _ := pem.Decode(r.Spec.Request)
			request, err := x509.ParseCertificateRequest(block.Bytes)
			require.NoError(t, err)
			require.NoError(t, request.CheckSignature())
			require.Equal(t, tc.subject, request.Subject.String())
			require.Equal(t, tc.dns, request.DNSNames)
			var ips []string
			for _, ip := range request.IPAddresses {
				ips = append(ips, ip.String())
			}
			require.Equal(t, tc.ips, ips)

			w.pass(day)
			require.Equal(t, 1, w.creations())
			require.Less(t, w.asked, 1500, "one look in a minute or two")
			require.Nil(t, w.serial(), "the agent's own is served")
			w.logged(2, "kubectl certificate approve "+r.Name)
			require.Equal(t, 2, strings.Count(w.log.String(), "\n"), w.log)
		})
	}
}

// TestApproval: an approved certificate is used, kept for this user alone, and renewed between 70 % and 90 %
// of its lifetime with another key, until when it stays in use. After a restart it is used at once, also
// without the server.
func TestApproval(t *testing.T) {
	test(t, "approved later", func(w *world) {
		w.start()
		w.pass(2 * time.Hour)
		r := w.the()
		w.do(func() { set(r, certificatesv1.CertificateApproved) })
		w.pass(time.Hour)
		w.logged(1, "nothing signs it: check that the signer's controller runs")
		w.do(func() { r.Status.Certificate = w.by.sign(t, r.Spec.Request, 10*day) })
		w.pass(4 * time.Minute)
		w.logged(1, "issued the serving certificate")
		first := w.c.Get()
		require.NotNil(t, first)
		info, err := os.Stat(filepath.Join(w.opts.Dir, certificateFile))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.NoFileExists(t, filepath.Join(w.opts.Dir, requestFile))

		w.do(func() { w.fail = func(string) error { return errAway } })
		w.start()
		require.Equal(t, first.Leaf.SerialNumber, w.serial())
		w.pass(6 * day)
		w.logged(0, "can't be asked")
		w.do(func() { w.fail = nil })
		w.approving(10 * day)
		for w.serial().Cmp(first.Leaf.SerialNumber) == 0 && time.Since(first.Leaf.NotBefore) < 10*day {
			w.pass(time.Minute)
		}
		at := time.Since(first.Leaf.NotBefore)
		require.GreaterOrEqual(t, at, 7*day)
		require.LessOrEqual(t, at, 9*day+2*time.Minute)
		require.NotEqual(t, first.PrivateKey, w.c.Get().PrivateKey)
		require.Equal(t, 2, w.creations())
		w.logged(0, "don't trust")
	})
	test(t, "renewals of many agents are spread", func(w *world) {
		leaf := &x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(100 * day)}
		seen := map[int]bool{}
		for range 500 {
			at := int(renewal(leaf).Sub(leaf.NotBefore) / day)
			require.GreaterOrEqual(t, at, 70)
			require.Less(t, at, 90)
			seen[at] = true
		}
		require.Greater(t, len(seen), 15)
	})
}

// TestRestart_Pending: a restart keeps the request, so that an approval is not lost.
func TestRestart_Pending(t *testing.T) {
	test(t, "", func(w *world) {
		w.start()
		r := w.the()
		for range 5 {
			w.start()
			w.pass(time.Hour)
		}
		require.Equal(t, 1, w.creations())
		w.do(func() { r.Status.Certificate = w.by.sign(t, r.Spec.Request, day) })
		w.start()
		require.NotNil(t, w.serial())

		require.NoError(t, os.Remove(filepath.Join(w.opts.Dir, certificateFile)))
		w.start() // the key is lost: the request is of no use
		w.pass(10 * time.Second)
		require.Equal(t, 2, w.creations())
		require.NotEqual(t, r.UID, w.the().UID)
	})
}

// TestRefusals: after a refusal the next request comes an hour later, then less and less often, also over a
// restart. Each is logged once, with the reason. The agent's own certificate is served meanwhile.
func TestRefusals(t *testing.T) {
	other := newAuthority(t)
	for name, tc := range map[string]struct {
		answer func(w *world, r *certificatesv1.CertificateSigningRequest)
		want   string
	}{
		"denied": {func(_ *world, r *certificatesv1.CertificateSigningRequest) { set(r, certificatesv1.CertificateDenied) },
			"was denied: have its approver allow the next one"},
		"failed": {func(_ *world, r *certificatesv1.CertificateSigningRequest) { set(r, certificatesv1.CertificateFailed) },
			"the signer can't issue the serving certificate: check its controller's log"},
		"no certificate": {func(_ *world, r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") },
			"the signer's certificate can't be used: check the signer"},
		"another key": {func(w *world, r *certificatesv1.CertificateSigningRequest) {
			r.Status.Certificate = w.by.sign(t, r.Spec.Request, day, func(c *x509.Certificate) { c.PublicKey = other.key.Public() })
		}, "it is for another key"},
		"another address": {func(w *world, r *certificatesv1.CertificateSigningRequest) {
			r.Status.Certificate = w.by.sign(t, r.Spec.Request, day, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 6)} })
		}, "not 10.0.0.5"},
		"never valid": {func(w *world, r *certificatesv1.CertificateSigningRequest) {
			r.Status.Certificate = w.by.sign(t, r.Spec.Request, 0)
		}, "it is never valid"},
	} {
		test(t, name, func(w *world) {
			w.answer = func(r *certificatesv1.CertificateSigningRequest) { tc.answer(w, r) }
			w.start()
			w.pass(59 * time.Minute)
			require.Equal(t, 1, w.creations())
			w.logged(1, tc.want)
			w.start()
			w.pass(30 * time.Minute)
			require.Equal(t, 1, w.creations(), "not sooner by a restart")
			w.pass(7 * day)
			require.GreaterOrEqual(t, w.creations(), 8)
			require.LessOrEqual(t, w.creations(), 12)
			require.Len(t, w.requests, 1)
			w.logged(w.creations()+1, tc.want) // once more after the restart
			require.Nil(t, w.serial())

			w.approving(30 * day)
			w.pass(2 * day)
			require.NotNil(t, w.serial(), "a later one is good")
		})
	}
}

// TestGone: a request that the cluster has deleted is created again, with the same key, and not
// without a limit of the rate.
func TestGone(t *testing.T) {
	test(t, "", func(w *world) {
		w.start()
		before := w.the()
		w.do(func() { clear(w.requests) })
		w.pass(10 * time.Minute)
		after := w.the()
		require.NotEqual(t, before.UID, after.UID)
		require.True(t, isFor(after, w.opts.Signer, w.c.key.Public()))
		require.True(t, isFor(before, w.opts.Signer, w.c.key.Public()))
		w.do(func() {
			w.answer = func(r *certificatesv1.CertificateSigningRequest) { delete(w.requests, r.Name) }
			clear(w.requests)
		})
		w.pass(day)
		require.Less(t, w.creations(), 725)
		require.Less(t, strings.Count(w.log.String(), "\n"), 4, w.log)
	})
}

// TestErrors: each kind of error is logged once, with the next step, until the server has answered.
func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		verb string // empty for all
		want string
	}{
		"unreachable": {errAway, "", "check the network"},
		"forbidden":   {apierrors.NewForbidden(requestsResource, "a", nil), "", "grant it (snapcache config rbac prints the manifest)"},
		"no creation": {apierrors.NewForbidden(requestsResource, "a", nil), "create", "grant it (snapcache config rbac prints the manifest)"},
		"invalid":     {apierrors.NewBadRequest("signerName"), "create", "check signer and nodeName"},
		"no group":    {apierrors.NewNotFound(requestsResource, "a"), "", "give certFile and keyFile in place of signer"},
		"overloaded":  {apierrors.NewTooManyRequests("wait", 1), "", "is retried"},
	} {
		test(t, name, func(w *world) {
			w.fail = func(verb string) error {
				if tc.verb != "" && tc.verb != verb {
					return nil
				}
				return tc.err
			}
			w.start()
			w.pass(day)
			w.logged(1, tc.want)
			w.logged(1, "served=\"the agent's own, which pods don't trust\"")
			require.Equal(t, 1, strings.Count(w.log.String(), "\n"), w.log)
			require.Less(t, w.asked, 1500)
			w.do(func() { w.fail = nil })
			w.approving(30 * day)
			w.pass(10 * time.Minute)
			require.NotNil(t, w.serial())
		})
	}
	test(t, "no deletion", func(w *world) {
		w.start()
		w.opts.Host = "10.0.0.6"
		w.fail = func(verb string) error {
			if verb == "delete" {
				return apierrors.NewForbidden(requestsResource, "a", nil)
			}
			return nil
		}
		w.start()
		w.pass(day)
		require.Equal(t, 1, w.creations())
		w.logged(1, "kubectl delete csr "+w.the().Name)
	})
}

// TestExpired: an expired certificate stays in use, and the log has that once.
func TestExpired(t *testing.T) {
	test(t, "", func(w *world) {
		w.approving(day)
		w.start()
		w.pass(5 * time.Second)
		first := w.serial()
		require.NotNil(t, first)
		w.do(func() { w.fail = func(string) error { return errAway } })
		w.pass(20 * day)
		require.Equal(t, first, w.serial())
		w.logged(1, "has expired")
		w.logged(1, "check the network")
		w.start()
		require.Equal(t, first, w.serial(), "also after a restart")
		w.do(func() { w.fail = nil })
		w.pass(10 * time.Minute)
		require.NotEqual(t, first, w.serial())
	})
}

// TestNames: a certificate for other names, or of another signer, is replaced, and used until then.
func TestNames(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"address": func(o *Options) { o.Host = "10.0.0.6" },
		"node":    func(o *Options) { o.NodeName = "edge-2" },
		"signer":  func(o *Options) { o.Signer = "example.com/serving" },
	} {
		test(t, name, func(w *world) {
			w.approving(100 * day)
			w.start()
			w.pass(5 * time.Second)
			first := w.serial()
			require.NotNil(t, first)
			change(&w.opts)
			w.do(func() { w.answer = nil })
			w.start()
			w.pass(time.Hour)
			require.Equal(t, first, w.serial())
			w.approving(100 * day)
			w.do(func() { clear(w.requests) })
			w.pass(10 * time.Minute)
			require.NotEqual(t, first, w.serial())
			require.NoError(t, w.c.Get().Leaf.VerifyHostname(w.opts.Host))
			w.start()
			w.pass(day)
			require.Equal(t, 3, w.creations())
		})
	}
}

// TestCertificate_WrongClock: with a wrong clock there is no series of requests, and none at all if it is
// behind. When the clock is right again, the certificate is renewed in time.
func TestCertificate_WrongClock(t *testing.T) {
	const year = 365 * day
	test(t, "behind", func(w *world) {
		w.approving(year)
		w.start()
		w.pass(5 * time.Second)
		w.clock.Set(-29 * year)
		w.start()
		w.pass(30 * day)
		require.Equal(t, 1, w.creations())
		w.clock.Set(0)
		w.pass(305 * day)
		require.Equal(t, 2, w.creations())
		w.logged(0, "level=ERROR")
	})
	test(t, "behind at the first start", func(w *world) {
		w.clock.Set(-29 * year)
		w.approving(year)
		w.start()
		w.pass(30 * day)
		require.NotNil(t, w.serial())
		require.Equal(t, 1, w.creations())
	})
	test(t, "ahead", func(w *world) {
		w.approving(year)
		w.start()
		w.pass(5 * time.Second)
		w.clock.Set(10 * year)
		w.start()
		w.pass(day)
		require.GreaterOrEqual(t, w.creations(), 4)
		require.LessOrEqual(t, w.creations(), 7)
		w.logged(w.creations()-1, "set this machine's clock")
		w.clock.Set(0)
		before := w.creations()
		w.pass(200 * day)
		require.Equal(t, before, w.creations())
		w.pass(150 * day)
		require.Equal(t, before+1, w.creations())
	})
	test(t, "ahead, offline", func(w *world) {
		w.approving(year)
		w.start()
		w.pass(5 * time.Second)
		first := w.serial()
		w.do(func() { w.fail = func(string) error { return errAway } })
		w.clock.Set(10 * year)
		w.start()
		w.pass(10 * day)
		w.clock.Set(0)
		w.do(func() { w.fail = nil })
		w.pass(10 * day)
		require.Equal(t, first, w.serial())
		require.Equal(t, 1, w.creations())
	})
	test(t, "set back after a refusal", func(w *world) {
		w.clock.Set(10 * year)
		w.answer = func(r *certificatesv1.CertificateSigningRequest) { set(r, certificatesv1.CertificateDenied) }
		w.start()
		w.pass(30 * time.Minute)
		w.clock.Set(0)
		w.pass(time.Hour)
		require.Equal(t, 2, w.creations())
	})
}

// TestTrust: a certificate that pods do not trust by the cluster's CA is logged with the remedy, and served.
func TestTrust(t *testing.T) {
	test(t, "of another authority", func(w *world) {
		w.ca = newAuthority(t).pem(t)
		w.approving(100 * day)
		w.start()
		w.pass(10 * day)
		require.NotNil(t, w.serial())
		w.logged(1, "snapcache patch --ca-configmap")
		w.start()
		w.logged(2, "snapcache patch --ca-configmap")
		require.NoError(t, WriteAuthorities(w.opts.Dir, w.scripted))
		_, err := Authorities(w.opts.Dir, []byte("own"))
		require.ErrorIs(t, err, ErrNotTrusted)
	})
	test(t, "for clients alone", func(w *world) {
		w.approving(100*day, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
		w.start()
		w.pass(10 * day)
		w.logged(1, "snapcache patch --ca-configmap")
	})
	test(t, "no CA", func(w *world) {
		w.ca = nil
		w.approving(100 * day)
		w.start()
		w.pass(10 * day)
		w.logged(1, "the agent's kubeconfig has no certificate-authority")
	})
	test(t, "trusted", func(w *world) {
		own := newAuthority(t).pem(t)
		_, err := Authorities(w.opts.Dir, own)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.NoError(t, WriteAuthorities(w.opts.Dir, w.scripted))
		all, err := Authorities(w.opts.Dir, own)
		require.NoError(t, err)
		require.Equal(t, string(own)+string(w.ca), string(all))
		w.approving(100 * day)
		w.start()
		w.pass(10 * time.Second)
		w.logged(0, "level=ERROR")
		_, err = Authorities(w.opts.Dir, own)
		require.NoError(t, err)
		require.NoError(t, Remove(w.opts.Dir))
		left, err := os.ReadDir(w.opts.Dir)
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

// TestFiles: damaged files and a disk that takes none do not stop the agent.
func TestFiles(t *testing.T) {
	test(t, "damaged", func(w *world) {
		for _, name := range []string{certificateFile, requestFile} {
			require.NoError(t, os.WriteFile(filepath.Join(w.opts.Dir, name), []byte("# "+newTarget(w.opts).String()+"\ntorn"), 0o600))
		}
		w.approving(100 * day)
		w.start()
		w.pass(10 * time.Second)
		require.NotNil(t, w.serial())
		w.logged(1, "can't be read, and is asked for again")
	})
	test(t, "not writable", func(w *world) {
		for _, name := range []string{certificateFile, requestFile} {
			require.NoError(t, os.MkdirAll(filepath.Join(w.opts.Dir, name, "sub"), 0o700))
		}
		w.approving(100 * day)
		w.start()
		w.pass(day)
		require.NotNil(t, w.serial())
		require.Equal(t, 1, w.creations())
		w.logged(2, "can't be written")
	})
	test(t, "a crash before the request's key is deleted", func(w *world) {
		w.start()
		key, err := os.ReadFile(filepath.Join(w.opts.Dir, requestFile))
		require.NoError(t, err)
		r := w.the()
		w.do(func() { r.Status.Certificate = w.by.sign(t, r.Spec.Request, 10*day) })
		w.pass(time.Hour)
		require.NoError(t, os.WriteFile(filepath.Join(w.opts.Dir, requestFile), key, 0o600))
		w.start()
		require.NoFileExists(t, filepath.Join(w.opts.Dir, requestFile))
		w.approving(10 * day)
		w.pass(9 * day)
		require.Equal(t, 2, w.creations())
		w.logged(0, "level=ERROR")
	})
}
