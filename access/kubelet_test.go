package access

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// issue returns a client certificate of an authority, after changes to one for the kubelet of edge-1.
func issue(by *authority, change func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:node:edge-1", Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(c)
	}
	return by.sign(c)
}

// TestKubelet: the agent's authority is good for the kubelet of its node alone, on its machine, beside the
// cluster's, and not at all unless it is set.
func TestKubelet(t *testing.T) {
	own, other, cluster := newAuthority(t), newAuthority(t), newAuthority(t) // all with the same name
	accepts := func(w *world, from string, chain ...*x509.Certificate) error {
		r := request("", chain...)
		r.RemoteAddr = from
		c, err := w.Caller(r)
		if err == nil {
			require.True(t, c.Certificate)
			require.False(t, c.Local, "its rights are the cluster's")
			require.Equal(t, chain[0].CheckSignatureFrom(own.cert) == nil, c.Issued)
			require.Equal(t, "system:node:edge-1", c.User.Username)
			require.Equal(t, []string{"system:nodes", "system:authenticated"}, c.User.Groups)
		}
		return err
	}
	const here, elsewhere = "127.0.0.1:40000", "192.0.2.7:40000"
	newOwn := func() *world {
		w := newWorld()
		w.opts.Kubelet = NewKubelet("edge-1", own.cert)
		return w
	}
	kubelet := issue(own, nil)

	w := newOwn()
	for range 2 { // the second time from what is remembered
		require.NoError(t, accepts(w, here, kubelet))
		require.ErrorIs(t, accepts(w, elsewhere, kubelet), errElsewhere)
	}
	require.NoError(t, w.SetClientCA(cluster.pem()))
	require.NoError(t, accepts(w, here, kubelet))
	require.NoError(t, accepts(w, here, issue(cluster, nil)))
	require.NoError(t, accepts(w, elsewhere, issue(cluster, nil)))

	intermediate := own.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, PublicKey: &own.key.PublicKey,
	})
	for name, c := range map[string]*x509.Certificate{
		"another node":     issue(own, func(c *x509.Certificate) { c.Subject.CommonName = "system:node:edge-2" }),
		"the prefix":       issue(own, func(c *x509.Certificate) { c.Subject.CommonName = "system:node:" }),
		"an administrator": issue(own, func(c *x509.Certificate) { c.Subject.CommonName = "admin" }),
		"no name":          issue(own, func(c *x509.Certificate) { c.Subject.CommonName = "" }),
		"another group":    issue(own, func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }),
		"one more group":   issue(own, func(c *x509.Certificate) { c.Subject.Organization = []string{"system:nodes", "system:masters"} }),
		"no group":         issue(own, func(c *x509.Certificate) { c.Subject.Organization = nil }),
		"a UID": issue(own, func(c *x509.Certificate) {
			c.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: userID, Value: "1"}}
		}),
		"a serving certificate":        issue(own, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
		"an unknown authority":         issue(other, nil),
		"the agent's authority itself": own.cert,
	} {
		t.Run(name, func(t *testing.T) {
			for _, w := range []*world{newOwn(), w} {
				require.Error(t, accepts(w, here, c, intermediate))
			}
		})
	}
	require.ErrorContains(t, accepts(newOwn(), here, issue(own, func(c *x509.Certificate) { c.Subject.CommonName = "admin" })), errOtherUser.Error())

	for name, off := range map[string]*world{"off": newWorld(), "another node's agent": newWorld()} {
		if name != "off" {
			off.opts.Kubelet = NewKubelet("edge-2", own.cert)
		}
		require.Error(t, accepts(off, here, kubelet), name)
		require.NoError(t, off.SetClientCA(cluster.pem()))
		require.Error(t, accepts(off, here, kubelet), name)
		require.NoError(t, accepts(off, here, issue(cluster, nil)), name)
	}
}

// TestKubelet_Expired: a certificate that has ended is refused within a minute, and the next one is accepted.
// One that a token comes with does not take the token's place.
func TestKubelet_Expired(t *testing.T) {
	own, w := newAuthority(t), newWorld()
	w.opts.Kubelet = NewKubelet("edge-1", own.cert)
	ends := start.Add(time.Hour)
	old := issue(own, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Unix(0, 0), ends })
	accepts := func(c *x509.Certificate) error {
		_, err := w.Caller(request("", c))
		return err
	}
	for _, at := range []time.Time{start, ends} {
		w.clock.SetTime(at)
		require.NoError(t, accepts(old), at)
	}
	w.clock.SetTime(ends.Add(answerAge))
	require.ErrorContains(t, accepts(old), "expired")
	require.NoError(t, accepts(issue(own, nil)))
	_, err := w.Caller(request("local", old))
	require.NoError(t, err)
}
