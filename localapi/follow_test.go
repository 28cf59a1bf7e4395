package localapi

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// patience limits how long a test waits for an event.
const patience = 20 * time.Second

// bell implements Changed of a source; the test rings it.
type bell struct {
	mu      sync.Mutex
	changed chan struct{}
}

func (b *bell) next(string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// follower follows an eventful collection from RV 15.
type follower struct {
	t      *testing.T
	c      store.Collection
	bell   *bell
	stop   chan struct{} // ends the agent
	cancel func()        // ends the follower
	lines  chan string
	ended  chan error
}

// following runs test with a follower of each store, in the process and over a socket, that has
// received all existing changes.
func following(t *testing.T, test func(t *testing.T, f *follower)) {
	for _, way := range []string{"", "socket"} {
		s := newEventful(t)
		t.Run("bolt"+way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			f := &follower{
				t: t, c: s.Collection, bell: &bell{}, stop: make(chan struct{}), cancel: cancel,
				lines: make(chan string), ended: make(chan error, 1),
			}
			opts := options(t, "bolt")
			opts.Changed, opts.Done = f.bell.next, f.stop
			src := FromDB(s.DB, opts)
			if way != "" {
				src = serve(t, src)
			}
			go func() {
				f.ended <- src.Changes(ctx, "configmaps", ChangeQuery{Since: "15", Follow: true}, func(c Change) error {
					select {
					case f.lines <- line(c):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
			}()
			f.expect("17 DELETED b/n", "18 ADDED a/y", "BOOKMARK 18")
			test(t, f)
			cancel()
			select {
			case <-f.ended:
			case <-f.lines:
				t.Error("more changes than expected")
			}
		})
	}
}

// expect waits for these changes.
func (f *follower) expect(want ...string) {
	f.t.Helper()
	for _, w := range want {
		select {
		case got := <-f.lines:
			require.Equal(f.t, w, got)
		case err := <-f.ended:
			f.t.Fatalf("the stream ended with %v instead of %s", err, w)
		case <-time.After(patience):
			f.t.Fatalf("timed out waiting for %s", w)
		}
	}
}

// ends waits for the end of the stream.
func (f *follower) ends() error {
	f.t.Helper()
	select {
	case got := <-f.lines:
		f.t.Fatalf("%s instead of the end", got)
	case err := <-f.ended:
		f.ended <- err // for following
		return err
	case <-time.After(patience):
		f.t.Fatal("timed out waiting for the end")
	}
	return nil
}

func (f *follower) apply(cp store.Checkpoint, changes ...store.Change) {
	f.t.Helper()
	apply(f.t, f.c, cp, changes...)
	f.bell.ring()
}

func TestFollow(t *testing.T) {
	following(t, func(t *testing.T, f *follower) {
		f.apply(goesOn(20), put("a", "x", "u1", 19), put("b", "m", "u6", 20))
		f.expect("19 MODIFIED a/x", "20 ADDED b/m", "BOOKMARK 20")
		f.bell.ring() // without a change
		f.apply(goesOn(21))
		f.expect("BOOKMARK 21")
		f.apply(goesOn(23), del("b/m", 23))
		f.expect("23 DELETED b/m", "BOOKMARK 23")
		replace(t, f.c, goesOn(30), storetest.Delete("b/z"), put("b", "k", "u7", 28))
		f.bell.ring()
		f.expect("24 DELETED b/z", "28 ADDED b/k", "BOOKMARK 30") // a deletion of a list has the lowest free resourceVersion
	})
}

// A change past the checkpoint is delivered once; an object that appeared there is delivered when
// the checkpoint is past it.
func TestFollowPastTheCheckpoint(t *testing.T) {
	following(t, func(_ *testing.T, f *follower) {
		f.apply(goesOn(20), put("a", "x", "u1", 22), put("b", "m", "u6", 24))
		f.expect("22 MODIFIED a/x", "BOOKMARK 20")
		f.apply(goesOn(21), del("b/z", 25))
		f.expect("25 DELETED b/z", "BOOKMARK 21")
		f.apply(goesOn(23), put("b", "k", "u7", 23))
		f.expect("23 ADDED b/k", "BOOKMARK 23")
		f.apply(goesOn(26), del("b/m", 26))
		f.expect("BOOKMARK 26")
	})
}

// A change between reading a view and waiting is not missed.
func TestFollowMissesNothing(t *testing.T) {
	s := newEventful(t)
	b := &bell{}
	opts := options(t, "bolt")
	opts.Changed = b.next
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rv := 18
	err := FromDB(s.DB, opts).Changes(ctx, "configmaps", ChangeQuery{Since: "18", Follow: true}, func(c Change) error {
		if c.Type != Bookmark {
			return nil
		}
		require.Equal(t, fmt.Sprint(rv), c.ResourceVersion)
		if rv++; rv == 50 {
			cancel()
			return nil
		}
		apply(t, s.Collection, goesOn(rv), put("a", "x", "u1", rv))
		b.ring()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 50, rv)
}

// A history that is gone can't be followed, even if its resourceVersions continue.
func TestFollowedHistoryIsGone(t *testing.T) {
	cp := func(rv int, cluster string, reason store.Reason) store.Checkpoint {
		cp := goesOn(rv)
		cp.Cluster, cp.ListReason = cluster, reason
		return cp
	}
	for _, tc := range []struct {
		name   string
		change func(f *follower)
		text   string
	}{
		{"another cluster, further on", func(f *follower) {
			replace(f.t, f.c, cp(30, "two", store.ReasonClusterChanged), put("a", "x", "v1", 29))
		}, "resourceVersion 18 is too old: the history began again after RV 30, at 2026-01-02T03:34:07Z (cluster-changed): list again"},
		{"another cluster, not so far", func(f *follower) {
			replace(f.t, f.c, cp(3, "two", store.ReasonClusterChanged), put("a", "x", "v1", 2))
		}, "the history began again after RV 3, "},
		{"an older state, caught up", func(f *follower) {
			replace(f.t, f.c, cp(16, "one", store.ReasonRVAhead), put("a", "x", "u1", 16))
			next := cp(19, "one", store.ReasonRVAhead)
			next.LastList = cp(16, "", "").LastList
			apply(f.t, f.c, next, put("a", "x", "u1", 19))
		}, "the history began again after RV 16, "},
		{"a checkpoint that goes back", func(f *follower) {
			next := goesOn(17)
			next.LastList = goesOn(18).LastList
			apply(f.t, f.c, next)
		}, "the history began again after RV 17, "},
		{"one number twice", func(f *follower) {
			apply(f.t, f.c, goesOn(20), put("a", "x", "u1", 19), put("b", "z", "u3", 19))
		}, "resourceVersion 18 is too old: the history begins after RV 20, "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			following(t, func(t *testing.T, f *follower) {
				tc.change(f)
				f.bell.ring()
				err := f.ends()
				require.ErrorIs(t, err, ErrTooOld)
				require.ErrorContains(t, err, tc.text)
			})
		})
	}
}

func TestFollowEnds(t *testing.T) {
	following(t, func(t *testing.T, f *follower) {
		close(f.stop)
		err := f.ends()
		require.ErrorIs(t, err, ErrNoAgent)
		require.EqualError(t, err, "no agent answers any more: the agent is stopping")
	})
	following(t, func(t *testing.T, f *follower) {
		f.cancel()
		require.ErrorIs(t, f.ends(), context.Canceled)
	})
}

// A slow follower blocks no other client and no writer, and receives everything in the end.
func TestSlowFollowerBlocksNothing(t *testing.T) {
	for _, way := range []string{"db", "socket"} {
		t.Run(way, func(t *testing.T) {
			db, path := newBolt(t)
			c := eventful(t, db)
			b := &bell{}
			opts := options(t, "bolt")
			opts.Changed = b.next
			src := FromDB(db, opts)
			if way == "socket" {
				src = serve(t, src)
			}
			size := func() int64 {
				info, err := os.Stat(path)
				require.NoError(t, err)
				return info.Size()
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			stood := false
			err := src.Changes(ctx, "configmaps", ChangeQuery{Since: "15", Follow: true, Objects: true}, func(ch Change) error {
				if ch.ResourceVersion == "318" && ch.Type == Bookmark {
					cancel()
				}
				if stood {
					return nil
				}
				stood = true
				before := size()
				for rv := 19; rv <= 318; rv++ {
					apply(t, c, goesOn(rv), put("a", "x", "u1", rv))
					require.NoError(t, db.Flush())
					b.ring()
				}
				require.Less(t, size()-before, int64(4<<20), "the file must not keep the pages of 300 flushes for an open view")
				return nil
			})
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}
