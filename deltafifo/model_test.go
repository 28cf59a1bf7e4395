package deltafifo

import (
	"maps"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
)

// event is one line of the server's history; a nil object deletes.
type event struct {
	rv  int
	key string
	obj *object.Object
}

var keys = []string{"a", "b", "c", "d", "e"}

// server is the plain model: a history of events, one resourceVersion each.
type server struct {
	rv      int
	history []event
}

func (s *server) change(t *rapid.T) event {
	s.rv++
	key := rapid.SampledFrom(keys).Draw(t, "key")
	e := event{rv: s.rv, key: key}
	if old := s.at(s.rv)[key]; old == nil || rapid.IntRange(0, 3).Draw(t, "delete") > 0 {
		uid := strconv.Itoa(s.rv)
		if old != nil {
			uid = string(old.GetUID())
		}
		e.obj = obj(t, key, uid, s.rv)
	}
	s.history = append(s.history, e)
	return e
}

// at returns the server's objects as of rv.
func (s *server) at(rv int) held {
	h := held{}
	for _, e := range s.history {
		if e.rv > rv {
			break
		}
		if e.obj == nil {
			delete(h, e.key)
		} else {
			h[e.key] = e.obj
		}
	}
	return h
}

// newest returns the RV of the newest event of key at or below rv, 0 for none.
func (s *server) newest(key string, rv int) int {
	n := 0
	for _, e := range s.history {
		if e.key == key && e.rv <= rv {
			n = e.rv
		}
	}
	return n
}

// TestModel drives the queue with a server's history, lists that succeed and fail, and a consumer
// that takes batches of any size and "persists" them. After each step, what is persisted must never
// lack an event at or below its checkpoint (invariant 1), and a consumer that resumes there ends in
// the server's state.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		srv := &server{}
		persisted, checkpoint := held{}, 0
		has := map[string]int{} // key → RV of the newest event that is persisted
		q := NewDeltaFIFO(Options{KnownObjects: persisted})
		q.Start("0")
		var staged held
		stagedHas := map[string]int{}
		var replaced []int // RVs of the lists that were queued as one

		consume := func(limit int) bool {
			if !func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.readyLocked() }() {
				_, err := q.pop(expired(), 0)
				require.Error(t, err)
				return false
			}
			b, err := q.pop(t.Context(), limit)
			require.NoError(t, err)
			into, intoHas := persisted, has
			if b.List {
				if staged == nil {
					staged, stagedHas = maps.Clone(persisted), maps.Clone(has)
				}
				into, intoHas = staged, stagedHas
			}
			into.apply(b.Deltas)
			for _, kd := range b.Deltas {
				for _, d := range kd.Deltas {
					if _, rv := identity(d.Object); rv != "" {
						intoHas[kd.Key], _ = strconv.Atoi(rv)
					}
				}
			}
			switch {
			case b.ListAborted:
				staged = nil
				require.Empty(t, b.Watermark)
			case b.ListDone:
				clear(persisted)
				maps.Copy(persisted, staged)
				has, staged = stagedHas, nil
				for _, key := range keys {
					// A complete list stands for every event up to its RV.
					rv, _ := strconv.Atoi(b.Watermark)
					has[key] = max(has[key], srv.newest(key, rv))
				}
			case b.List:
				require.Empty(t, b.Watermark, "a part of a list has no watermark")
			}
			if b.Watermark != "" {
				w, err := strconv.Atoi(b.Watermark)
				require.NoError(t, err)
				require.GreaterOrEqual(t, w, checkpoint, "the watermark went back")
				checkpoint = w
				for len(replaced) > 0 && w >= replaced[0] {
					for _, key := range keys {
						has[key] = max(has[key], srv.newest(key, replaced[0]))
					}
					replaced = replaced[1:]
				}
			}
			return true
		}
		drain := func() {
			for consume(0) {
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"event": func(t *rapid.T) {
				e := srv.change(t)
				switch {
				case e.obj == nil:
					last := obj(t, e.key, "gone", e.rv)
					require.NoError(t, q.Delete(last))
				default:
					require.NoError(t, q.Update(e.obj))
				}
			},
			"bookmark": func(t *rapid.T) { require.NoError(t, q.Bookmark(strconv.Itoa(srv.rv))) },
			"replace": func(t *rapid.T) {
				for range rapid.IntRange(0, 5).Draw(t, "missed") {
					srv.change(t)
				}
				var list []any
				for _, o := range srv.at(srv.rv) {
					list = append(list, o)
				}
				require.NoError(t, q.Replace(list, strconv.Itoa(srv.rv)))
				replaced = append(replaced, srv.rv)
			},
			"pop": func(t *rapid.T) { consume(rapid.IntRange(0, 3).Draw(t, "limit")) },
			"relist": func(t *rapid.T) {
				drain()
				for range rapid.IntRange(0, 5).Draw(t, "missed") {
					srv.change(t)
				}
				require.NoError(t, q.BeginReplace(t.Context(), Replace{Force: rapid.Bool().Draw(t, "force")}))
				fail := rapid.Bool().Draw(t, "fail")
				for _, o := range srv.at(srv.rv) {
					require.NoError(t, q.ReplaceItem(o))
					if rapid.Bool().Draw(t, "consume") {
						consume(1)
					}
				}
				if fail {
					q.AbortReplace()
					drain()
					// The reflector lists again: until that succeeds, no watch goes on.
					require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
					for _, o := range srv.at(srv.rv) {
						require.NoError(t, q.ReplaceItem(o))
					}
				}
				require.NoError(t, q.EndReplace(strconv.Itoa(srv.rv)))
				drain()
				require.Equal(t, srv.at(srv.rv), persisted)
			},
			"": func(t *rapid.T) {
				for _, key := range keys {
					require.GreaterOrEqual(t, has[key], srv.newest(key, checkpoint),
						"checkpoint %d is ahead of what is persisted of %s", checkpoint, key)
				}
				resumed := maps.Clone(persisted)
				for _, e := range srv.history {
					if e.rv <= checkpoint {
						continue
					}
					if e.obj == nil {
						resumed.apply([]KeyDeltas{{Key: e.key, Deltas: cache.Deltas{{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: e.key}}}}})
					} else {
						resumed[e.key] = e.obj
					}
				}
				require.Equal(t, srv.at(srv.rv), resumed, "resuming at %d loses events", checkpoint)
			},
		})
	})
}
