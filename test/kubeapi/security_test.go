package kubeapi

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

var readRules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps", "pods"}, Verbs: []string{"get", "list", "watch"}}}

// secrets is a request for what only few may read.
const secrets = "/api/v1/namespaces/" + other + "/secrets"

// TestSecurity: attempts to read what the cluster would not show, each beside the same request with the
// right credentials, which succeeds. All are made while the kube-apiserver can be reached; those at
// authentication are made again without it, after a restart.
func TestSecurity(t *testing.T) {
	v := newVault(t)
	v.account(t, "limited", mine, readRules...)
	v.account(t, "reader", "", readRules...)
	v.account(t, "events", "", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"get", "list", "watch"}})
	v.account(t, "leaving", "", readRules...)

	alive := v.token(t, "reader", v.pod(t, "alive", "reader"))
	dead := v.token(t, "reader", v.pod(t, "dead", "reader"))
	again := v.token(t, "reader", v.pod(t, "again", "reader"))
	v.removePod(t, "again")
	v.pod(t, "again", "reader")
	limited, reader, events := proof{token: v.token(t, "limited", nil)}, proof{token: v.token(t, "reader", nil)}, proof{token: v.token(t, "events", nil)}
	v.allowed(t, "pod", proof{token: alive}, secrets)
	v.allowed(t, "pod", proof{token: dead}, secrets)
	v.removePod(t, "dead")
	withdrawn := v.withdraw(t)

	strangers := v.strangers(t, alive, dead, again, limited)
	t.Run("strangers", func(t *testing.T) { v.testStrangers(t, strangers) })
	t.Run("paths", func(t *testing.T) { v.testPaths(t, limited, reader) })
	t.Run("forwarding", func(t *testing.T) {
		f := *v
		f.serve(t, v.plane, true)
		f.testStrangers(t, f.strangers(t, alive, dead, again, limited))
		f.testPaths(t, limited, reader)
		require.Empty(t, f.reached(t, asNoOne), "a request without valid credentials is not forwarded")
		got := f.reached(t, asUser)
		require.NotEmpty(t, got, "the control: one with valid credentials is")
		for _, x := range got {
			require.Regexp(t, "^system:serviceaccount:"+mine+`:limited ([34]\d\d .*|200 get /(version|api))$`, x, "the request counts as that user's, and is refused")
		}
	})
	t.Run("scopes", func(t *testing.T) { v.testScopes(t, limited, reader) })
	t.Run("methods", func(t *testing.T) {
		for _, method := range []string{"HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get"} {
			code, body := v.send(t, limited.with("X-HTTP-Method-Override", "GET"), method, secrets)
			require.Contains(t, []int{400, 403, 405}, code, method)
			require.False(t, v.leaks(body), method)
		}
		v.allowed(t, "right", reader, secrets)
	})
	t.Run("events and errors", func(t *testing.T) {
		code, body := v.send(t, events, http.MethodGet, "/api/v1/events")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, v.marker, "the control: events of that namespace are seen")
		require.NotContains(t, body, base64.StdEncoding.EncodeToString([]byte(v.marker)), "a Secret's content in the answer")
		for _, query := range []string{"", "?resourceVersion=x", "?resourceVersion=999999999", "?limit=x", "?fieldSelector=nope%3D1", "?labelSelector=(", "?continue=x",
			"?watch=1&resourceVersion=x", "?resourceVersionMatch=Exact", "?fieldSelector=type%3DOpaque", "?timeoutSeconds=x"} {
			code, there := v.send(t, events, http.MethodGet, secrets+"/x0"+query)
			require.Equal(t, http.StatusForbidden, code, query)
			code, absent := v.send(t, events, http.MethodGet, secrets+"/y0"+query)
			require.Equal(t, http.StatusForbidden, code, query)
			require.Equal(t, strings.ReplaceAll(there, "x0", "y0"), absent, "%s: an error does not show what exists", query)
			code, body = v.send(t, events, http.MethodGet, secrets+query)
			require.Equal(t, http.StatusForbidden, code, query)
			require.False(t, v.leaks(body))
		}
	})
	t.Run("health", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/livez", "/readyz", "/healthz?verbose", "/readyz?verbose=1&exclude=x", "https://kubernetes/livez"} {
			answer, c := v.open(t, proof{}, http.MethodGet, path)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, c.Close())
			require.Equal(t, "ok", string(body), path)
			for name := range answer.Header {
				require.Contains(t, []string{"Cache-Control", "Content-Type", "X-Content-Type-Options", "Date", "Content-Length"}, name)
			}
		}
	})
	t.Run("a watch after its right was withdrawn", func(t *testing.T) { withdrawn(t) })

	v.link.Down()
	v.stop()
	v.start()
	t.Run("strangers without the server", func(t *testing.T) { v.testStrangers(t, strangers) })
	log := harness.ReadFile(t, filepath.Join(v.dir, "log"))
	for _, s := range strangers {
		if token := s.as.token; len(token) > 20 {
			require.NotContains(t, string(log), token[len(token)-20:], "%s: no credential is logged", s.name)
		}
	}
	require.False(t, v.leaks(string(log)))
}

// The user agents of attempts: without valid credentials, and with those of a user.
const (
	asNoOne = "no one"
	asUser  = "a user"
)

// testStrangers: no request of a stranger is answered.
func (v *vault) testStrangers(t *testing.T, strangers []stranger) {
	type attempt struct{ method, target string }
	attempts := []attempt{
		{"GET", secrets}, {"GET", secrets + "/x0"}, {"GET", "/api/v1/secrets"}, {"GET", "/version"}, {"GET", "/api"}, {"GET", secrets + "?watch=1&timeoutSeconds=1"},
	}
	if v.forward { // what is not in the cache
		const in = "/api/v1/namespaces/" + other
		attempts = append(attempts, attempt{"GET", in + "/services"}, attempt{"GET", "/api/v1/services?watch=1"}, attempt{"POST", secrets}, attempt{"DELETE", secrets},
			attempt{"PATCH", secrets + "/x0"}, attempt{"POST", in + "/pods/x/exec?command=ls"}, attempt{"GET", in + "/pods/x/log"}, attempt{"POST", in + "/serviceaccounts/default/token"},
			attempt{"GET", "/"}, attempt{"GET", "/metrics"}, attempt{"OPTIONS", secrets}, attempt{"CONNECT", secrets})
	}
	for _, s := range strangers {
		t.Run(s.name, func(t *testing.T) {
			agent := asNoOne
			if s.code == http.StatusForbidden {
				agent = asUser
			}
			for _, x := range attempts {
				var code int
				var body string
				require.Eventually(t, func() bool { // what was deleted may take a moment to arrive
					code, body = v.send(t, s.as.with("User-Agent", agent), x.method, x.target)
					return code == s.code || s.code == http.StatusForbidden && code == http.StatusOK && !strings.Contains(x.target, "secrets")
				}, 30*time.Second, 100*time.Millisecond, "%v", x)
				require.False(t, v.leaks(body))
			}
			v.allowed(t, "right", s.right, secrets)
		})
	}
}

// allowed requires that a request is answered with what is secret: the control of attempts that fail.
func (v *vault) allowed(t *testing.T, name string, as proof, target string) {
	t.Helper()
	var code int
	var body string
	require.Eventually(t, func() bool {
		code, body = v.send(t, as, http.MethodGet, target)
		return code == http.StatusOK
	}, patience, pollEvery, name)
	require.True(t, v.leaks(body), "%s: %s", name, body)
}

// stranger is a client that must not read the Secrets of the other namespace.
type stranger struct {
	name  string
	as    proof
	code  int   // of its answers
	right proof // the same with the right credentials
}

func (v *vault) strangers(t *testing.T, alive, dead, again string, limited proof) []stranger {
	t.Helper()
	const refused = http.StatusUnauthorized
	admin := proof{certificate: v.issued(t, master, time.Hour)}
	pod := proof{token: alive}
	forge := func(header, claims map[string]any, key any) proof {
		return proof{token: forged(t, alive, header, claims, key)}
	}
	der, err := x509.MarshalPKIXPublicKey(v.accountKey.Public())
	require.NoError(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	evil := newSigner(t)
	coordinate := func(i *big.Int) string { return base64.RawURLEncoding.EncodeToString(i.FillBytes(make([]byte, 32))) }
	point, err := evil.PublicKey.Bytes()
	require.NoError(t, err)
	require.Equal(t, elliptic.P256(), evil.Curve)
	jwk := map[string]any{"kty": "EC", "crv": "P-256", "x": coordinate(new(big.Int).SetBytes(point[1:33])), "y": coordinate(new(big.Int).SetBytes(point[33:]))}
	unix := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	local := restConfig(t, v.cached).BearerToken
	flipped := "A" + local[1:]
	if flipped == local {
		flipped = "B" + local[1:]
	}
	// The control of what is forged: the same with nothing wrong.
	genuine := forge(nil, map[string]any{"jti": "genuine"}, v.accountKey)
	all := []stranger{
		{"no credentials", proof{}, refused, pod},
		{"no credentials, as if proxied from loopback", proof{}.with("X-Forwarded-For", "127.0.0.1").with("Forwarded", "for=127.0.0.1").with("X-Real-Ip", "127.0.0.1"), refused, pod},
		{"another user's token", limited, http.StatusForbidden, pod},
		{"a token whose pod was deleted", proof{token: dead}, refused, pod},
		{"a token whose pod was made again", proof{token: again}, refused, pod},
		{"a token signed by another key", forge(nil, nil, evil), refused, genuine},
		{"with the other key in its header", forge(map[string]any{"jwk": jwk}, nil, evil), refused, genuine},
		{"without key id", forge(map[string]any{"kid": ""}, nil, evil), refused, genuine},
		{"alg none", forge(map[string]any{"alg": "none"}, nil, nil), refused, genuine},
		{"alg None without key id", forge(map[string]any{"alg": "None", "kid": ""}, nil, nil), refused, genuine},
		{"without signature", forge(nil, nil, nil), refused, genuine},
		{"HS256 with the public key", forge(map[string]any{"alg": "HS256"}, nil, public), refused, genuine},
		{"HS256 with the public key as DER", forge(map[string]any{"alg": "HS256"}, nil, der), refused, genuine},
		{"critical header", forge(map[string]any{"crit": []string{"b64"}, "b64": false}, nil, v.accountKey), refused, genuine},
		{"an expired token", forge(nil, map[string]any{"iat": unix(-2 * time.Hour), "nbf": unix(-2 * time.Hour), "exp": unix(-2 * time.Minute)}, v.accountKey), refused, genuine},
		{"not valid yet", forge(nil, map[string]any{"nbf": unix(time.Hour), "exp": unix(2 * time.Hour)}, v.accountKey), refused, genuine},
		{"for another audience", forge(nil, map[string]any{"aud": []string{"vault"}}, v.accountKey), refused, genuine},
		{"of another issuer", forge(nil, map[string]any{"iss": "https://elsewhere"}, v.accountKey), refused, genuine},
		{"a certificate of another CA", proof{certificate: newCertificate(t, newCertificate(t, nil))}, refused, admin},
		{"a certificate signed by itself", proof{certificate: newCertificate(t, nil)}, refused, admin},
		{"an expired certificate", proof{certificate: v.issued(t, master, -time.Minute)}, refused, admin},
		{"a certificate signed by that of a client", proof{certificate: newCertificate(t, admin.certificate)}, refused, admin},
		{"another CA and another user's token", proof{certificate: newCertificate(t, nil), token: limited.token}, http.StatusForbidden, admin},
		{"the agent's token but for a letter", proof{token: flipped}, refused, proof{token: local}},
		{"the agent's token in the query", proof{}.with("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("admin:"+local))), refused, proof{token: local}},
		{"the agent's token as another scheme", proof{}.with("Authorization", "Token "+local), refused, proof{token: local}},
		{"a token for a WebSocket", proof{}.with("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(alive))), refused, pod},
		{"a front proxy's headers", proof{}.with("X-Remote-User", "admin").with("X-Remote-Group", "system:masters"), refused, admin},
		{"a front proxy's headers with another user's token", limited.with("X-Remote-User", "admin").with("X-Remote-Group", "system:masters").with("X-Remote-Extra-Scopes", "all"), http.StatusForbidden, admin},
	}
	for _, header := range [][2]string{
		{"Impersonate-User", "admin"}, {"Impersonate-Group", "system:masters"}, {"Impersonate-Uid", "1"}, {"Impersonate-Extra-Scopes", "all"},
		{"impersonate-user", "admin"}, {"IMPERSONATE-GROUP", "system:masters"}, {"Impersonate-Extra-a%2fb", "x"},
	} {
		all = append(all,
			stranger{header[0] + " by another user", limited.with(header[0], header[1]), refused, admin},
			stranger{header[0] + " by the agent's token", proof{token: local}.with(header[0], header[1]), refused, proof{token: local}},
			stranger{header[0] + " by no one", proof{}.with(header[0], header[1]), refused, admin})
	}
	return all
}

// testPaths: however a path is written, it is authorized as what is answered.
func (v *vault) testPaths(t *testing.T, limited, reader proof) {
	paths := []string{
		"//api/v1/secrets", "///api/v1/secrets", "/api//v1/secrets", "/api/v1//secrets", "/api/v1/secrets/", "/api/v1/secrets//", "/api/v1/./secrets", "/./api/v1/secrets",
		"/%61pi/v1/secrets", "/api%2fv1%2fsecrets", "/api/v1%2Fsecrets", "/api/v1/%73ecrets", "/API/v1/secrets", "/api/V1/secrets", "/api/v1/Secrets", "/api/v1/secrets;x=1",
		"/api/v1/secrets%00", "/api/v1/secrets%20", "/api/v1/secrets?/../x", "/api/v1/secrets%3fx", "/apis//v1/secrets", "/apis/core/v1/secrets", "/api/v2/secrets", "/api/v1/secrets/x0",
		"/api/v1/namespaces//secrets", "/api/v1/namespaces/%2a/secrets", "/api/v1/namespaces/*/secrets", "/api/v1/namespaces/%00/secrets", "/api/v1/namespaces/" + other + "/secrets/x0/status",
		"/version/../api/v1/secrets", "/healthz/../api/v1/secrets", "/livez%2f..%2fapi/v1/secrets", "/openapi/v3/../../api/v1/secrets", "/openapi/v3/%2e%2e/%2e%2e/api/v1/secrets",
		"/api/v1/proxy/namespaces/" + other + "/secrets", "/api/v1/watch/secrets?timeoutSeconds=1", "/api/v1/watch/namespaces/" + other + "/secrets?timeoutSeconds=1",
		"http://kubernetes/api/v1/secrets", "https://admin:x@elsewhere/api/v1/secrets", "http:///api/v1/secrets", "https://kubernetes//api/v1/secrets",
	}
	for _, step := range []string{"..", "%2e%2e", ".%2e", "%2e.", "..%3b", "..;", "..%00", "%252e%252e"} {
		for _, slash := range []string{"/", "%2f", "%2F", "//", "%5c", `\`} {
			up := step + slash
			paths = append(paths,
				"/api/v1/namespaces/"+mine+slash+up+other+"/secrets", "/api/v1/namespaces/"+mine+slash+up+other+slash+"secrets",
				"/api/v1/namespaces/"+mine+"/secrets"+slash+up+up+other+"/secrets/x0", "/api/v1/namespaces/"+mine+"/secrets/"+up+up+other+slash+"x0",
				"/api/v1/watch/namespaces/"+mine+slash+up+other+"/secrets?timeoutSeconds=1", "/healthz"+slash+up+"api/v1/secrets")
		}
	}
	for _, path := range paths {
		code, body := v.send(t, limited.with("User-Agent", asUser), http.MethodGet, path)
		require.False(t, v.leaks(body), "%s: %d %s", path, code, body)
		// Only two kinds of answers are not a refusal: paths of discovery, and a namespace of that name.
		require.NotEqual(t, http.StatusOK, code, "%s: %s", path, body)
		code, body = v.send(t, proof{}.with("User-Agent", asNoOne), http.MethodGet, path)
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusBadRequest}, code, "%s without credentials: %s", path, body)
	}
	controls := []string{"/api/v1/secrets", "/api/v1/secrets/", "/%61pi/v1/secrets", "https://kubernetes/api/v1/secrets"}
	if !v.forward { // else the kube-apiserver judges odd paths
		controls = append(controls, "//api/v1/secrets", "/api/v1/namespaces/"+other+"%2fsecrets")
	}
	for _, path := range controls {
		v.allowed(t, path, reader, path)
	}
	code, _ := v.send(t, limited, http.MethodGet, "/api/v1/namespaces/"+mine+"/secrets")
	require.Equal(t, http.StatusOK, code)
}

// testScopes: a user whose rights end at a namespace gets nothing of another one, in any form.
func (v *vault) testScopes(t *testing.T, limited, reader proof) {
	const table, metadata = "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	code, first := v.send(t, reader, http.MethodGet, "/api/v1/configmaps?limit=1")
	require.Equal(t, http.StatusOK, code)
	_, token, _ := strings.Cut(first, `"continue":"`)
	token, _, _ = strings.Cut(token, `"`)
	require.NotEmpty(t, token)
	crafted := func(rv int, start string) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":%q}`, rv, start))
	}
	watch := "watch=1&timeoutSeconds=1"
	for _, resource := range []string{"secrets", "configmaps"} {
		for _, query := range []string{
			"", "resourceVersion=0", "limit=1", "limit=1&continue=" + token, "labelSelector=app%3Dweb", "fieldSelector=metadata.namespace%3D" + mine, "fieldSelector=metadata.namespace%3D" + other,
			"fieldSelector=metadata.name%3Dx0", "fieldSelector=metadata.name%3Dx0,metadata.namespace%3D" + mine, "namespace=" + mine, watch, watch + "&resourceVersion=0", watch + "&resourceVersion=1",
			watch + "&resourceVersion=0&allowWatchBookmarks=true", watch + "&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
			watch + "&fieldSelector=metadata.namespace%3D" + mine, watch + "&labelSelector=app%3Dweb",
		} {
			for _, accept := range []string{"application/json", table, metadata, strings.Replace(metadata, "List", "", 1)} {
				for _, path := range []string{"/api/v1/" + resource, "/api/v1/namespaces/" + other + "/" + resource} {
					code, body := v.send(t, limited.with("Accept", accept), http.MethodGet, path+"?"+query)
					require.Equal(t, http.StatusForbidden, code, "%s?%s: %s", path, query, body)
					require.False(t, v.leaks(body))
				}
				own := "/api/v1/namespaces/" + mine + "/" + resource + "?" + query
				_, body := v.send(t, limited.with("Accept", accept), http.MethodGet, own)
				require.False(t, v.leaks(body), "%s: %s", own, body)
			}
		}
		// The control: the same form shows it to a reader, and its own to the user.
		v.allowed(t, "list", reader, "/api/v1/"+resource+"?fieldSelector=metadata.namespace%3D"+other)
		v.allowed(t, "watch", reader, "/api/v1/"+resource+"?"+watch+"&resourceVersion=0")
		v.allowed(t, "metadata", reader.with("Accept", metadata), "/api/v1/"+resource)
		v.allowed(t, "table", reader.with("Accept", table), "/api/v1/"+resource+"?includeObject=Object")
		code, body := v.send(t, limited, http.MethodGet, "/api/v1/namespaces/"+mine+"/"+resource+"?"+watch+"&resourceVersion=0")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, `"x0"`)
		for _, start := range []string{"/", "x0", "/../" + other + "/x0\x00", "../" + other + "/", "/" + other + "/x0", "..", "/../../", "\x00", "/\x00../" + other} {
			for _, rv := range []int{-1, 1} {
				own := "/api/v1/namespaces/" + mine + "/" + resource + "?limit=10&continue=" + crafted(rv, start)
				_, body := v.send(t, limited, http.MethodGet, own)
				require.False(t, v.leaks(body), "%q: %s", start, body)
			}
		}
	}
}

// withdraw opens watches of a user whose right to them ends now, and of another one. The returned function
// requires that the first one has ended within a minute, and the other one has not.
func (v *vault) withdraw(t *testing.T) func(*testing.T) {
	t.Helper()
	open := func(name string) (io.Reader, io.Closer) {
		answer, c := v.open(t, proof{token: v.token(t, name, nil)}, http.MethodGet, "/api/v1/configmaps?watch=1&resourceVersion=0")
		require.Equal(t, http.StatusOK, answer.StatusCode)
		return answer.Body, c
	}
	leaving, c := open("leaving")
	staying, kept := open("reader")
	var seen bytes.Buffer
	gone := make(chan error, 1)
	lasting := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, staying); lasting <- err }()
	require.NoError(t, v.admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), "leaving", metav1.DeleteOptions{}))
	began := time.Now()
	took := time.Duration(0)
	go func() { _, err := io.Copy(&seen, leaving); took = time.Since(began); gone <- err }()
	return func(t *testing.T) {
		defer c.Close()
		defer kept.Close()
		select {
		case err := <-gone:
			require.NoError(t, err, "the watch was cut, not ended")
		case <-time.After(time.Until(began.Add(75 * time.Second))):
			require.Fail(t, "the watch did not end within 75 s of the withdrawal")
		}
		require.Less(t, took, 70*time.Second) // a minute, and moments of a busy machine
		require.True(t, v.leaks(seen.String()), "the watch had sent objects before")
		require.Empty(t, lasting, "the other one lasts")
	}
}
