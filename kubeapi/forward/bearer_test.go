package forward

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/access"
)

// nodeServer knows tokens, by their users, and counts what it gets.
type nodeServer struct {
	users    map[string]string
	silent   atomic.Bool // a server that answers no review
	reviews  atomic.Int32
	requests atomic.Int32
	last     atomic.Pointer[http.Request]
}

func (n *nodeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.last.Store(r)
	if r.URL.Path != "/apis/authentication.k8s.io/v1/selfsubjectreviews" {
		n.requests.Add(1)
		return
	}
	n.reviews.Add(1)
	if n.silent.Load() {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	var review authenticationv1.SelfSubjectReview
	review.Status.UserInfo.Username = n.users[r.Header.Get("Authorization")]
	review.Status.UserInfo.UID, review.Status.UserInfo.Groups = "arn", []string{"system:bootstrappers", "system:nodes"}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

// TestBearer: the kubelet to which the agent has issued a certificate is forwarded with the token in a file, or
// of a plugin, if the server names the kubelet as its user. No one else is.
func TestBearer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(file, []byte("file-token"), 0o600))
	plugin := filepath.Join(dir, "plugin")
	const credential = `{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "plugin-token"}}`
	require.NoError(t, os.WriteFile(plugin, []byte("#!/bin/sh\necho '"+credential+"'\n"), 0o700)) //nolint:gosec // it is run
	issued, other := node("system:node:edge-1", "system:nodes"), node("system:node:edge-2", "system:nodes")
	issued.Issued, other.Issued = true, true
	for name, tc := range map[string]struct{ user, token string }{
		"a token": {"token: own-token", "own-token"},
		"a file":  {"tokenFile: " + file, "file-token"},
		"a plugin": {
			"exec: {apiVersion: client.authentication.k8s.io/v1, command: " + plugin + ", interactiveMode: Never}", "plugin-token",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := withUser(t, tc.user)
			n := &nodeServer{users: map[string]string{"Bearer " + tc.token: "system:node:edge-1"}}
			clock := clocktesting.NewFakePassiveClock(time.Now())
			s := newSite(t, n, func(o *Options) { o.Kubeconfigs, o.Clock = []string{f.kubeconfig()}, clock })
			send := func(c *access.Caller) int {
				t.Helper()
				s.caller.Store(c)
				a, err := client(t, s.proxy, "h2").Do(request(t, "POST", s.proxy.URL+"/x", nil))
				require.NoError(t, err)
				require.NoError(t, a.Body.Close())
				return a.StatusCode
			}
			for range 3 {
				require.Equal(t, http.StatusOK, send(issued))
				require.Equal(t, "Bearer "+tc.token, n.last.Load().Header.Get("Authorization"))
				require.Empty(t, n.last.Load().TLS.PeerCertificates)
			}
			require.EqualValues(t, 1, n.reviews.Load())
			require.True(t, s.Reaches(requestOf(t, s)))

			sent := n.requests.Load()
			require.Equal(t, http.StatusForbidden, send(other), "of another node")
			require.Equal(t, http.StatusForbidden, send(node("system:node:edge-1", "system:nodes")), "a certificate of the cluster")
			require.Equal(t, sent, n.requests.Load())
			require.NotContains(t, s.log.String(), tc.token)

			clock.SetTime(clock.Now().Add(proofAge))
			n.users = map[string]string{"Bearer " + tc.token: "admin"} // as of the next token of a plugin
			require.Equal(t, http.StatusForbidden, send(issued))
			require.EqualValues(t, 2, n.reviews.Load())
			clock.SetTime(clock.Now().Add(-2 * proofAge)) // by a clock that was wrong
			n.silent.Store(true)
			require.Equal(t, http.StatusForbidden, send(issued), "the server does not name it")
			require.Equal(t, sent, n.requests.Load())
			n.silent.Store(false)
			n.users = map[string]string{"Bearer " + tc.token: "system:node:edge-1"}
			require.Equal(t, http.StatusOK, send(issued))

			require.NoError(t, s.connect(&rest.Config{Host: s.upstream.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority(t, s.upstream)}}))
			reviews := n.reviews.Load()
			require.Equal(t, http.StatusOK, send(issued))
			require.Equal(t, reviews+1, n.reviews.Load(), "another server is asked itself")
			s.upstream.Close()
			clock.SetTime(clock.Now().Add(proofAge))
			require.Equal(t, http.StatusServiceUnavailable, send(issued))
		})
	}
}
