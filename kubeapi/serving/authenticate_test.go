package serving

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/snapcache/snapcache/access"
)

// TestUnprovenBytes: the heads of requests that wait for the server to name their caller are bounded in
// bytes, however many connections they come on, and a user of this machine leaves as many to the others.
func TestUnprovenBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		a := access.NewAuthenticator(access.AuthenticatorOptions{
			Connected: func() bool { return true },
			Review: func(context.Context, any, string) (authenticationv1.TokenReviewStatus, error) {
				<-answer
				return authenticationv1.TokenReviewStatus{}, nil // not a token of the cluster
			},
		})
		h := Authenticate(a, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("no one may come in") }))
		header := strings.Repeat("x", 40<<10)
		sent, size := 0, 0
		// ask sends requests on a connection each, of different addresses, and returns the answers to be.
		ask := func(uid uint32, n int) (answers []*httptest.ResponseRecorder) {
			for range n {
				sent++
				ctx := withOwner(t.Context(), &limitedConn{owner: owner{uid: uid, known: true}})
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api?x="+strings.Repeat("x", 8<<10), nil)
				r.RemoteAddr = fmt.Sprintf("192.0.%d.%d:40000", sent/250, sent%250)
				r.Header.Set("Authorization", fmt.Sprint("Bearer ", sent))
				r.Header.Set("X", header)
				size = headBytes(r)
				w := httptest.NewRecorder()
				w.Code = 0
				answers = append(answers, w)
				go h.ServeHTTP(w, r)
			}
			synctest.Wait()
			return answers
		}
		count := func(answers []*httptest.ResponseRecorder) (codes map[int]int) {
			codes = map[int]int{}
			for _, w := range answers {
				codes[w.Code]++
				if w.Code == http.StatusTooManyRequests {
					require.Contains(t, w.Body.String(), ErrTooLarge.Error())
				}
			}
			return codes
		}
		first := ask(1, 1000)
		most := maxUnproven / 2 / size
		require.Equal(t, map[int]int{0: most, http.StatusTooManyRequests: 1000 - most}, count(first), "half of the bytes")
		other := ask(2, 50)
		require.Equal(t, map[int]int{0: 50}, count(other), "another user")
		close(answer)
		synctest.Wait()
		require.Equal(t, map[int]int{http.StatusUnauthorized: 50}, count(other))
		require.Equal(t, map[int]int{http.StatusUnauthorized: 50}, count(ask(1, 50)), "there is room again")
	})
}
