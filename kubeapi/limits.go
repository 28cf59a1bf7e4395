package kubeapi

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/spool"
)

// Limits of a [Server], so that its memory, and the disk space of its spools, are bounded. Requests
// that exceed them get 429, after which client-go repeats them.
const (
	// maxRequests limits the requests for resources, with watches, that are answered at once.
	maxRequests = 4000

	// maxWatches limits the watches, each of which takes some 30 KiB. A kubelet has one for each Secret
	// and ConfigMap of its pods.
	maxWatches = 2000

	// maxSpools limits the lists, and the initial objects of watches, that are sent at once. A spool
	// has at most 1 MiB in memory, and a file of at most the collection's size.
	maxSpools = 32

	// maxUserSpools limits those of one user, which may read them slowly.
	maxUserSpools = 8
)

// limit holds a value for each of those that are limited by its capacity.
type limit chan struct{}

// enter reports whether there is room. If so, leave has to follow.
func (l limit) enter() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l limit) leave() { <-l }

// share is a user's part of what is limited.
type share struct {
	limit
	requests int // that have the share
}

// shares are the parts of all users that use theirs. It is safe for concurrent use; the zero value is
// ready.
type shares struct {
	mu sync.Mutex
	of map[string]*share // by user
}

// open returns the share of a caller, which done has to follow. Callers that this machine lets in have
// no limit of their own.
func (s *shares) open(c *access.Caller, size int) (_ limit, done func()) {
	if c == nil || c.Local {
		return make(limit, 1), func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*share{}
	}
	user := c.User.Username
	x := s.of[user]
	if x == nil {
		x = &share{limit: make(limit, size)}
		s.of[user] = x
	}
	x.requests++
	return x.limit, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.requests--; x.requests == 0 {
			delete(s.of, user)
		}
	}
}

// newSpool returns a spool, and the function that frees it, which may be called again. The caller's share
// comes first: one that waits for its own lists keeps no place.
func (s *Server) newSpool(ctx context.Context) (*spool.Spool, func(), error) {
	own, closeShare := s.shares.open(access.CallerOf(ctx), maxUserSpools)
	if err := s.awaitRoom(ctx, own); err != nil {
		closeShare()
		return nil, nil, err
	}
	if err := s.awaitRoom(ctx, s.spools); err != nil {
		own.leave()
		closeShare()
		return nil, nil, err
	}
	sp := spool.New(s.opts.SpoolDir)
	return sp, sync.OnceFunc(func() {
		sp.Close()
		s.spools.leave()
		own.leave()
		closeShare()
	}), nil
}

// awaitRoom waits until there is room for one more list, but not for long.
func (s *Server) awaitRoom(ctx context.Context, l limit) error {
	if l.enter() {
		return nil
	}
	timer := s.opts.Clock.NewTimer(waitLimit)
	defer timer.Stop()
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return later("too many lists are being sent")
	}
}

// writeLimit is how long a client may take to accept what is written at once, before its request is
// cut. Whatever it accepts begins another one.
const writeLimit = 30 * time.Second

// impatient writes an answer with writeLimit. The deadline stays after the last write, for what
// net/http still has to write.
type impatient struct {
	w    io.Writer
	http *http.ResponseController
}

func newImpatient(w http.ResponseWriter) impatient {
	return impatient{w: w, http: http.NewResponseController(w)}
}

// Write implements io.Writer. Not every writer has deadlines: those of tests have none.
func (i impatient) Write(p []byte) (int, error) {
	_ = i.http.SetWriteDeadline(time.Now().Add(writeLimit))
	return i.w.Write(p)
}
