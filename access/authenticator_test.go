package access

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

const issuer = "https://kubernetes.default.svc"

// authority signs certificates and tokens.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &authority{t: t, key: key}
	a.cert = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign completes a certificate: signed by the authority, or by itself if that has none yet.
func (a *authority) sign(c *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = start.Add(-time.Hour), start.Add(1000*time.Hour)
	}
	by := a.cert
	if by == nil {
		by = c
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, by, &a.key.PublicKey, a.key)
	require.NoError(a.t, err)
	out, err := x509.ParseCertificate(raw)
	require.NoError(a.t, err)
	return out
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) keys(id string) *Keys {
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: a.key.Public(), KeyID: id, Algorithm: "ES256", Use: "sig"}}})
	require.NoError(a.t, err)
	keys, err := ParseKeys(issuer, set)
	require.NoError(a.t, err)
	return keys
}

// token signs claims.
func (a *authority) token(id string, claims map[string]any) string {
	a.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: crypto.Signer(a.key), KeyID: id}}, nil)
	require.NoError(a.t, err)
	s, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(a.t, err)
	return s
}

// claimsOf returns the claims of the token of a pod.
func claimsOf(change func(map[string]any)) map[string]any {
	c := map[string]any{
		"iss": issuer, "aud": []string{issuer}, "sub": "system:serviceaccount:shop:till", "jti": "j1",
		"iat": start.Unix(), "nbf": start.Unix(), "exp": start.Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": "shop", "serviceaccount": map[string]any{"name": "till", "uid": "sa1"},
			"pod": map[string]any{"name": "till-0", "uid": "p1"}, "node": map[string]any{"name": "edge-1", "uid": "n1"},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

// world is an authenticator with the cluster that it knows.
type world struct {
	*Authenticator
	clock     *clocktesting.FakePassiveClock
	connected bool
	reviewed  int
	refused   []error
	review    func(token string) (authenticationv1.TokenReviewStatus, error)
	objects   map[string]string // "resource namespace/name" to UID; "-" for one that is missing
}

func newWorld() *world {
	w := &world{
		clock:   clocktesting.NewFakePassiveClock(start),
		objects: map[string]string{"pods shop/till-0": "p1"},
		review: func(string) (authenticationv1.TokenReviewStatus, error) {
			return authenticationv1.TokenReviewStatus{}, errors.New("away")
		},
	}
	w.Authenticator = NewAuthenticator(AuthenticatorOptions{
		Token: "local", Clock: w.clock, Lookup: w.lookup,
		Connected: func() bool { return w.connected },
		Refused:   func(_ *http.Request, err error) { w.refused = append(w.refused, err) },
		Review: func(_ context.Context, _ any, token string) (authenticationv1.TokenReviewStatus, error) {
			w.reviewed++
			return w.review(token)
		},
	})
	return w
}

func (w *world) lookup(r schema.GroupResource, namespace, name string) (string, Presence) {
	switch uid := w.objects[r.Resource+" "+namespace+"/"+name]; uid {
	case "":
		return "", Unknown
	case "-":
		return "", Missing
	default:
		return uid, Present
	}
}

func request(token string, certificates ...*x509.Certificate) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "127.0.0.1:40000"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if len(certificates) > 0 {
		r.TLS = &tls.ConnectionState{PeerCertificates: certificates}
	}
	return r
}

// TestTokensOffline: only a token that the cluster has signed, for its server and for objects that
// exist, has a user while the server can't be reached.
func TestTokensOffline(t *testing.T) {
	cluster, other := newAuthority(t), newAuthority(t)
	kubernetes := func(field string, value any) func(map[string]any) {
		return func(c map[string]any) { c["kubernetes.io"].(map[string]any)[field] = value }
	}
	set := func(name string, value any) func(map[string]any) {
		return func(c map[string]any) { c[name] = value }
	}
	unsigned := func() string {
		body, err := json.Marshal(claimsOf(nil))
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(body) + "."
	}()
	symmetric := func() string {
		der, err := x509.MarshalPKIXPublicKey(&cluster.key.PublicKey)
		require.NoError(t, err)
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: der}, nil)
		require.NoError(t, err)
		s, err := jwt.Signed(signer).Claims(claimsOf(nil)).Serialize()
		require.NoError(t, err)
		return s
	}()
	good := cluster.token("k1", claimsOf(nil))
	for _, tc := range []struct {
		name, token string
		prepare     func(*world)
		want        string // of the error; empty if the caller is let in
	}{
		{"good", good, nil, ""},
		{"without key id", cluster.token("", claimsOf(nil)), nil, ""},
		{"a minute late", good, func(w *world) { w.clock.SetTime(start.Add(time.Hour + 50*time.Second)) }, ""},
		{"expired", good, func(w *world) { w.clock.SetTime(start.Add(time.Hour + 2*time.Minute)) }, "expired"},
		{"not yet valid", good, func(w *world) { w.clock.SetTime(start.Add(-2 * time.Minute)) }, "not valid yet"},
		{"another key", other.token("k1", claimsOf(nil)), nil, "its signature"},
		{"an unknown key", other.token("k2", claimsOf(nil)), nil, "no known key"},
		{"alg none", unsigned, nil, "unexpected signature algorithm"},
		{"alg HS256 with the public key", symmetric, nil, "unexpected signature algorithm"},
		{"changed", good[:len(good)-100] + "A" + good[len(good)-99:], nil, "bearer token"},
		{"no token", "secret", nil, "bearer token"},
		{"huge", strings.Repeat("a.", 100_000), nil, "bearer token"},
		{"another issuer", cluster.token("k1", claimsOf(set("iss", "https://evil"))), nil, "another issuer"},
		{"another audience", cluster.token("k1", claimsOf(set("aud", []string{"vault"}))), nil, "another audience"},
		{"no audience", cluster.token("k1", claimsOf(set("aud", []string{}))), nil, "another audience"},
		{"no expiry", cluster.token("k1", claimsOf(set("exp", nil))), nil, "no expiry"},
		{"a user's", cluster.token("k1", claimsOf(set("kubernetes.io", map[string]any{}))), nil, "not of a service account"},
		{"another subject", cluster.token("k1", claimsOf(set("sub", "system:serviceaccount:kube-system:admin"))), nil, "its subject"},
		{"pod is gone", good, func(w *world) { w.objects["pods shop/till-0"] = "-" }, `pods "till-0"`},
		{"pod of another UID", good, func(w *world) { w.objects["pods shop/till-0"] = "p2" }, `pods "till-0"`},
		{"service account is gone", good, func(w *world) { w.objects["serviceaccounts shop/till"] = "-" }, `serviceaccounts "till"`},
		{"node of the pod is gone", good, func(w *world) { w.objects["nodes /edge-1"] = "-" }, ""},
		{"only the node of the pod is cached", good, func(w *world) { w.objects = map[string]string{"nodes /edge-1": "n1"} }, "nothing that it is bound to"},
		{"node is gone", cluster.token("k1", claimsOf(kubernetes("pod", nil))), func(w *world) { w.objects["nodes /edge-1"] = "-" }, `nodes "edge-1"`},
		{"nothing is cached", good, func(w *world) { clear(w.objects) }, "nothing that it is bound to"},
		{"secret is gone", cluster.token("k1", claimsOf(kubernetes("secret", map[string]any{"name": "s", "uid": "s1"}))),
			func(w *world) { w.objects["secrets shop/s"] = "-" }, `secrets "s"`},
		{"no keys", good, func(w *world) { w.SetKeys(nil) }, "signing keys are not known"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.SetKeys(cluster.keys("k1"))
			if tc.prepare != nil {
				tc.prepare(w)
			}
			for range 2 { // the second time from memory
				c, err := w.Caller(request(tc.token))
				if tc.want == "" {
					require.NoError(t, err)
					require.Equal(t, authenticationv1.UserInfo{
						Username: "system:serviceaccount:shop:till", UID: "sa1",
						Groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"},
						Extra: map[string]authenticationv1.ExtraValue{
							"authentication.kubernetes.io/pod-name": {"till-0"}, "authentication.kubernetes.io/pod-uid": {"p1"},
							"authentication.kubernetes.io/node-name": {"edge-1"}, "authentication.kubernetes.io/node-uid": {"n1"},
							credentialID: {"JTI=j1"},
						},
					}, c.User)
					require.False(t, c.Local)
					continue
				}
				require.ErrorContains(t, err, tc.want)
				require.Equal(t, tc.name == "no keys", errors.Is(err, ErrNoKeys))
				require.Nil(t, c)
				require.NotContains(t, err.Error(), tc.token)
			}
			require.Zero(t, w.reviewed)
		})
	}
}

// TestTokensOnline: the server's answer counts while it can be reached, for a minute; without an answer
// the token is verified here.
func TestTokensOnline(t *testing.T) {
	cluster := newAuthority(t)
	w := newWorld()
	w.SetKeys(cluster.keys("k1"))
	w.connected = true
	good := cluster.token("k1", claimsOf(nil))
	accept := func(string) (authenticationv1.TokenReviewStatus, error) {
		return authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "alice"}}, nil
	}
	refuse := func(string) (authenticationv1.TokenReviewStatus, error) {
		return authenticationv1.TokenReviewStatus{}, nil
	}
	user := func(token string) string {
		c, err := w.Caller(request(token))
		if err != nil {
			return "refused"
		}
		return c.User.Username
	}
	w.review = refuse
	require.Equal(t, "refused", user(good), "the cluster knows better than its signature")
	require.Equal(t, "refused", user(good))
	require.Equal(t, 1, w.reviewed)
	w.clock.SetTime(start.Add(time.Minute))
	w.review = accept
	require.Equal(t, "alice", user(good))
	require.Equal(t, "alice", user("opaque"))
	require.Equal(t, "alice", user("opaque"))
	require.Equal(t, 3, w.reviewed)

	w.connected = false
	require.Equal(t, "refused", user("opaque"), "only the server can know it")
	require.Equal(t, "system:serviceaccount:shop:till", user(good))
	w.objects["pods shop/till-0"] = "-"
	require.Equal(t, "refused", user(good), "deletions count at once")
	w.objects["pods shop/till-0"] = "p1"
	require.Equal(t, 3, w.reviewed)

	w.connected = true
	w.review = refuse
	require.Equal(t, "refused", user(good), "a token verified offline is reviewed once the server is there")
	w.clock.SetTime(start.Add(3 * time.Minute))
	w.review = func(string) (authenticationv1.TokenReviewStatus, error) {
		return authenticationv1.TokenReviewStatus{}, errors.New("timeout")
	}
	require.Equal(t, "system:serviceaccount:shop:till", user(good))
}

// TestTokenOfDeletedObject: once the cache has the deletion of what a token is bound to, the server
// is asked again, and its answer counts. What is not yet in the cache makes no questions.
func TestTokenOfDeletedObject(t *testing.T) {
	cluster := newAuthority(t)
	w := newWorld()
	w.SetKeys(cluster.keys("k1"))
	w.connected = true
	valid := true
	w.review = func(string) (authenticationv1.TokenReviewStatus, error) {
		return authenticationv1.TokenReviewStatus{Authenticated: valid}, nil
	}
	token := cluster.token("k1", claimsOf(nil))
	accepted := func() bool {
		_, err := w.Caller(request(token))
		return err == nil
	}
	require.True(t, accepted())
	require.True(t, accepted())
	require.Equal(t, 1, w.reviewed)
	w.objects["pods shop/till-0"] = "-"
	require.True(t, accepted(), "the server may not know it yet")
	require.True(t, accepted())
	require.Equal(t, 2, w.reviewed)
	valid = false
	w.clock.SetTime(start.Add(missingAge))
	require.False(t, accepted())
	require.False(t, accepted())
	require.Equal(t, 3, w.reviewed)

	w.clock.SetTime(start.Add(2 * time.Minute))
	valid = true
	require.True(t, accepted(), "the cache is behind the server")
	require.True(t, accepted())
	require.Equal(t, 4, w.reviewed)
	w.objects["pods shop/till-0"] = "p1"
	w.clock.SetTime(start.Add(3*time.Minute - time.Second))
	require.True(t, accepted())
	require.Equal(t, 4, w.reviewed)
	clear(w.objects)
	require.True(t, accepted(), "an object that no collection covers makes no review")
	require.Equal(t, 4, w.reviewed)
}

// TestAudiences: the audiences that the server names in reviews are those that tokens are accepted for
// without it; the issuer if it has named none.
func TestAudiences(t *testing.T) {
	cluster := newAuthority(t)
	w := newWorld()
	w.SetKeys(cluster.keys("k1"))
	learned := 0
	w.opts.Learned = func() { learned++ }
	named := []string{}
	w.review = func(string) (authenticationv1.TokenReviewStatus, error) {
		return authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "alice"}, Audiences: named}, nil
	}
	id := 0
	accepts := func(audience string) bool {
		id++
		w.connected = false
		_, err := w.Caller(request(cluster.token("k1", claimsOf(func(c map[string]any) {
			c["aud"], c["jti"], c["exp"] = []string{audience}, strconv.Itoa(id), start.Add(10000*time.Hour).Unix()
		}))))
		return err == nil
	}
	review := func(audiences ...string) {
		id++
		named, w.connected = audiences, true
		r := request("token-" + strconv.Itoa(id))
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:40000", id) // one address may not send so many unknown tokens
		_, err := w.Caller(r)
		require.NoError(t, err)
	}
	review()
	require.True(t, accepts(issuer))
	require.False(t, accepts("api"))
	require.Zero(t, learned)

	review("api")
	require.True(t, accepts("api"))
	require.False(t, accepts(issuer), "the server has another audience")
	require.False(t, accepts("vault"))
	review("api", issuer)
	require.True(t, accepts(issuer))
	require.Equal(t, 2, learned)
	for range 10 {
		review("api")
	}
	require.Equal(t, 2, learned, "a known token is not stored again")

	raw, err := json.Marshal(w.Keys())
	require.NoError(t, err)
	stored := &Keys{}
	require.NoError(t, json.Unmarshal(raw, stored))
	w.SetKeys(nil)
	w.SetKeys(stored)
	require.True(t, accepts("api"), "after a restart")
	w.SetKeys(cluster.keys("k1"))
	require.True(t, accepts("api"), "with new keys of the same issuer")

	w.clock.SetTime(start.Add(audienceAge - time.Minute))
	review("api")
	require.Equal(t, 3, learned)
	require.True(t, accepts(issuer))
	w.clock.SetTime(start.Add(2 * audienceAge))
	review("api")
	require.True(t, accepts("api"))
	require.False(t, accepts(issuer), "the server has not named it for long")
	w.clock.SetTime(start.Add(3 * audienceAge))
	require.True(t, accepts("api"), "the server has not named another one")
	require.False(t, accepts(issuer))
	w.clock.SetTime(start)
	require.True(t, accepts("api"), "a clock that was set back")

	for i := range 100 {
		review("api", "many-"+strconv.Itoa(i))
	}
	require.Len(t, w.Keys().Audiences, maxAudiences)
	require.True(t, accepts("many-99"))
}

func TestLocalToken(t *testing.T) {
	w := newWorld()
	c, err := w.Caller(request("local"))
	require.NoError(t, err)
	require.True(t, c.Local)
	require.Empty(t, w.refused)
	for _, token := range []string{"", "loca", "local2", "LOCAL"} {
		_, err := w.Caller(request(token))
		require.Error(t, err)
	}
	as := request("local")
	as.Header.Set("Impersonate-User", "admin")
	_, err = w.Caller(as)
	require.ErrorIs(t, err, errImpersonates)
	require.Len(t, w.refused, 5)
	none := NewAuthenticator(AuthenticatorOptions{Clock: w.clock})
	_, err = none.Caller(request(""))
	require.ErrorIs(t, err, errNoCredentials)
	r := request("")
	r.Header.Set("Authorization", "Bearer ")
	_, err = none.Caller(r)
	require.Error(t, err, "no token is not an empty one")
}

// TestLocalTokenPeerAddresses: the agent's own token is good for processes of this machine, whose
// connections come from loopback or from the address that they go to.
func TestLocalTokenPeerAddresses(t *testing.T) {
	for _, tc := range []struct {
		name, peer, own string
		want            bool
	}{
		{"loopback", "127.0.0.1:40000", "127.0.0.1:6445", true},
		{"another one of loopback", "127.0.0.9:40000", "127.0.0.1:6445", true},
		{"loopback of IPv6", "[::1]:40000", "[::1]:6445", true},
		{"the address itself", "169.254.20.1:40000", "169.254.20.1:6445", true},
		{"the address itself as IPv6", "[::ffff:169.254.20.1]:40000", "169.254.20.1:6445", true},
		{"another machine", "192.0.2.7:40000", "169.254.20.1:6445", false},
		{"another machine of IPv6", "[fd00::7]:40000", "[fd00::1]:6445", false},
		{"no address", "", "169.254.20.1:6445", false},
		{"neither", "", "", false},
		{"a name", "localhost:40000", "169.254.20.1:6445", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request("local")
			r.RemoteAddr = tc.peer
			r.Header.Set("X-Forwarded-For", "127.0.0.1")
			if own, err := netip.ParseAddrPort(tc.own); err == nil {
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(net.TCPAddrFromAddrPort(own))))
			}
			c, err := newWorld().Caller(r)
			if tc.want {
				require.NoError(t, err)
				require.True(t, c.Local)
				return
			}
			require.ErrorIs(t, err, errNotLocal)
		})
	}
}

// TestOriginOfAddress: the addresses that a client can choose from are one origin.
func TestOriginOfAddress(t *testing.T) {
	for _, tc := range []struct {
		name, a, b string
		same       bool
	}{
		{"loopback", "127.0.0.1:1", "127.9.9.9:2", true},
		{"loopback of both kinds", "127.0.0.1:1", "[::1]:1", true},
		{"ports", "192.0.2.1:1", "192.0.2.1:2", true},
		{"IPv4", "192.0.2.1:1", "192.0.2.2:1", false},
		{"IPv4 as IPv6", "192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		{"IPv6 of one host", "[fd00::1]:1", "[fd00::2:3]:1", true},
		{"IPv6", "[fd00::1]:1", "[fd00:0:0:1::1]:1", false},
		{"zones", "[fe80::1%eth0]:1", "[fe80::1%eth1]:1", true},
		{"none", "", "192.0.2.1:1", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := request("x"), request("x")
			a.RemoteAddr, b.RemoteAddr = tc.a, tc.b
			require.Equal(t, tc.same, originOf(a) == originOf(b))
		})
	}
}

// TestUnknownTokens: an address that sends many tokens which may be of no one makes neither the server
// busy nor the agent's memory full, and does not keep out those that the cluster has signed, or that are
// known.
func TestUnknownTokens(t *testing.T) {
	cluster := newAuthority(t)
	for _, connected := range []bool{true, false} {
		t.Run(fmt.Sprintf("connected %v", connected), func(t *testing.T) {
			w := newWorld()
			w.SetKeys(cluster.keys("k1"))
			w.connected = connected
			w.review = func(token string) (authenticationv1.TokenReviewStatus, error) {
				return authenticationv1.TokenReviewStatus{Authenticated: !strings.HasPrefix(token, "random"), User: authenticationv1.UserInfo{Username: "alice"}}, nil
			}
			if connected {
				_, err := w.Caller(request("opaque"))
				require.NoError(t, err)
			}
			tooMany := 0
			for i := range 20_000 {
				_, err := w.Caller(request(fmt.Sprintf("random%d", i)))
				require.Error(t, err)
				if errors.Is(err, ErrTooManyTokens) {
					tooMany++
				}
			}
			require.InDelta(t, 20_000-unknownBurst, tooMany, 1)
			require.LessOrEqual(t, w.reviewed, unknownBurst)
			require.LessOrEqual(t, w.seen.Len(), unknownBurst+1)
			if connected {
				_, err := w.Caller(request("opaque"))
				require.NoError(t, err, "a known token during a flood")
			}
			for i := range 2 * unknownBurst {
				_, err := w.Caller(request(cluster.token("k1", claimsOf(func(c map[string]any) { c["jti"] = fmt.Sprint(i) }))))
				require.NoError(t, err, "the cluster has signed it")
			}
			elsewhere := request("random elsewhere")
			elsewhere.RemoteAddr = "192.0.2.7:40000"
			_, err := w.Caller(elsewhere)
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrTooManyTokens)
			w.clock.SetTime(start.Add(time.Second))
			for i := range unknownRate + 1 {
				_, err := w.Caller(request(fmt.Sprintf("random later %d", i)))
				require.Equal(t, i == unknownRate, errors.Is(err, ErrTooManyTokens))
			}
		})
	}
}

// TestLargeCredentials: what is remembered of a refused credential is small, however large that was.
func TestLargeCredentials(t *testing.T) {
	other := newAuthority(t)
	w := newWorld()
	cluster := newAuthority(t)
	require.NoError(t, w.SetClientCA(cluster.pem()))
	w.SetKeys(cluster.keys("k1"))
	large := strings.Repeat("x", 60_000)
	header := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":%q}`, large))
	certificate := other.sign(&x509.Certificate{Subject: pkix.Name{CommonName: large}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, DNSNames: []string{large}})
	for _, r := range []*http.Request{request(header + ".e30.AAAA"), request(large), request("", certificate, other.cert)} {
		_, err := w.Caller(r)
		require.Error(t, err)
		require.Less(t, len(err.Error()), 300)
		for e := err; e != nil; e = errors.Unwrap(e) {
			require.NotErrorAs(t, e, new(x509.UnknownAuthorityError), "an error must not hold the certificate")
		}
	}
}

func TestCertificates(t *testing.T) {
	cluster, other := newAuthority(t), newAuthority(t)
	client := func(a *authority, change func(*x509.Certificate)) []*x509.Certificate {
		c := &x509.Certificate{
			Subject:     pkix.Name{CommonName: "system:node:edge-1", Organization: []string{"system:nodes"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if change != nil {
			change(c)
		}
		return []*x509.Certificate{a.sign(c)}
	}
	uids := func(uids ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, uid := range uids {
				c.Subject.ExtraNames = append(c.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: userID, Value: uid})
			}
		}
	}
	for _, tc := range []struct {
		name      string
		chain     []*x509.Certificate
		uid, want string
	}{
		{"good", client(cluster, nil), "", ""},
		{"with UID", client(cluster, uids("u1")), "u1", ""},
		{"with two UIDs", client(cluster, uids("u1", "u2")), "", "not one UID"},
		{"another CA", client(other, nil), "", "unknown authority"},
		{"expired", client(cluster, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = start.Add(-2*time.Hour), start.Add(-time.Hour) }), "", "expired"},
		{"of a server", client(cluster, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "", "usage"},
		{"without name", client(cluster, func(c *x509.Certificate) { c.Subject.CommonName = "" }), "", "no common name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			_, err := w.Caller(request("", tc.chain...))
			require.ErrorContains(t, err, "no client CA is known")
			require.NoError(t, w.SetClientCA(cluster.pem()))
			for range 2 {
				c, err := w.Caller(request("", tc.chain...))
				if tc.want != "" {
					require.ErrorContains(t, err, tc.want)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, "system:node:edge-1", c.User.Username)
				require.Equal(t, tc.uid, c.User.UID)
				require.Equal(t, []string{"system:nodes", "system:authenticated"}, c.User.Groups)
			}
			require.Equal(t, tc.want == "", w.seen.Len() == 1, "others displace nothing that is known")
			require.NoError(t, w.SetClientCA(other.pem()))
			_, err = w.Caller(request("", tc.chain...))
			require.Equal(t, tc.name == "another CA", err == nil, "the authorities in force count at once")
		})
	}
}
