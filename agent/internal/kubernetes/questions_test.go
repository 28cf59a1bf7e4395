package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/seats"
)

// TestQuestionsLimitedPerClient: however many questions about one client wait, those about others find
// a place at once, and the former fail in a way that does not look like a server that is away.
func TestQuestionsLimitedPerClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuestions()
		var busy, begun int
		var mu sync.Mutex
		var greedy sync.WaitGroup
		var held []*seats.Seat
		for range 1000 {
			greedy.Go(func() {
				seat, err := q.begin(t.Context(), "greedy")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					require.ErrorIs(t, err, access.ErrBusy)
					busy++
					return
				}
				begun++
				held = append(held, seat)
			})
		}
		synctest.Wait()
		require.Equal(t, maxAsked/2, begun)
		for i := range 100 {
			began := time.Now()
			client := fmt.Sprint("other", i)
			seat, err := q.begin(t.Context(), client)
			require.NoError(t, err)
			require.Zero(t, time.Since(began))
			q.end(seat, true)
		}
		q.end(held[0], true)
		synctest.Wait()
		require.Equal(t, maxAsked/2+1, begun, "the next one")
		began := time.Now()
		greedy.Wait()
		require.Equal(t, maxWait, time.Since(began))
		require.Equal(t, 1000-begun, busy)
	})
}

// TestQuestionsServerSilent: if it answers no one, no client is to blame.
func TestQuestionsServerSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuestions()
		var held []*seats.Seat
		for range maxAsked / 2 {
			seat, err := q.begin(t.Context(), "kubelet")
			require.NoError(t, err)
			held = append(held, seat)
		}
		_, err := q.begin(t.Context(), "kubelet")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for _, seat := range held {
			q.end(seat, false)
		}
		seat, err := q.begin(t.Context(), "kubelet")
		require.NoError(t, err)
		q.end(seat, true)
	})
}

// TestWithdrawnRightUnderFlood: a user whose right was withdrawn can't keep it by asking so often that
// the server is not asked about it in time, and others are answered meanwhile.
func TestWithdrawnRightUnderFlood(t *testing.T) {
	w := newWorld(t)
	// Within this time one of the others has to be answered: without an answer, the server counts as away.
	w.x.questions.wait = 2 * time.Second
	require.True(t, w.may("mallory", "list", "secrets"), "the decision is remembered")
	waiting, released := make(chan struct{}, 4*maxAsked), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	w.mu.Lock()
	w.denied["mallory list secrets"] = true
	w.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"resource":"flood`)) {
			waiting <- struct{}{}
			<-released
		}
		return false
	}
	w.mu.Unlock()
	w.clock.Step(2 * time.Minute)
	w.list("pods", "200") // connected
	var flood sync.WaitGroup
	for i := range 4 * maxAsked {
		flood.Go(func() { _ = w.may("mallory", "list", fmt.Sprint("flood", i)) })
	}
	for range maxAsked / 2 {
		<-waiting
	}
	done := make(chan error)
	go func() { done <- w.ask("mallory", "list", "secrets") }()
	var refused error
	for i := 0; refused == nil; i++ {
		select {
		case refused = <-done:
			require.Error(t, refused, "no decision without the server")
		default:
			require.True(t, w.may(fmt.Sprint("alice", i), "list", "pods"))
		}
	}
	require.True(t, apierrors.IsTooManyRequests(refused), refused)
	release()
	flood.Wait()
	w.clock.Step(2 * time.Minute)
	require.True(t, apierrors.IsForbidden(w.ask("mallory", "list", "secrets")))
}
