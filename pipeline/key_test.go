package pipeline

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// TestKeyState has each kind of delta meet each state of a key. The stored version is 5, and the key of
// a corrupt record has it too if its header can be read.
func TestKeyState(t *testing.T) {
	at := func(rv int) *object.Object { return storetest.Object("ns", "a", "u", strconv.Itoa(rv), nil, "x") }
	type want struct {
		outcome  outcome
		kind     store.EventType
		presence presence
		version  string
	}
	added, none := want{taken, store.Added, readable, ""}, want{taken, "", absent, ""}
	updated, deleted := want{taken, store.Modified, readable, "5"}, want{taken, store.Deleted, absent, "5"}
	old, oldCorrupt := want{replay, "", readable, "5"}, want{replay, "", corrupt, "5"}
	corrected, removed := want{taken, store.Modified, readable, "4"}, want{taken, store.Deleted, absent, ""}
	unknown := cache.DeletedFinalStateUnknown{}
	for _, tc := range []struct {
		name                      string
		delta                     cache.DeltaType
		object                    any
		list                      bool
		absent, readable, corrupt want
	}{
		{"older", cache.Updated, at(4), false, added, old, oldCorrupt},
		{"same", cache.Updated, at(5), false, added, old, oldCorrupt},
		{"newer", cache.Added, at(6), false, added, updated, updated},
		{"delete, older", cache.Deleted, at(4), false, none, old, oldCorrupt},
		{"delete, same", cache.Deleted, at(5), false, none, deleted, deleted},
		{"delete, no object", cache.Deleted, unknown, false, none, deleted, deleted},
		{"no object", cache.Sync, nil, false,
			want{ignored, "", absent, ""}, want{ignored, "", readable, "5"}, want{ignored, "", corrupt, "5"}},
		{"correction", deltafifo.Corrected, at(4), false, want{taken, store.Added, readable, "4"}, corrected, corrected},
		{"corrected to absent", deltafifo.Corrected, nil, false, none, removed, removed},
		{"listed", cache.Replaced, at(4), true, added, updated, updated},
		{"not listed", cache.Deleted, unknown, true, none, deleted, deleted},
	} {
		stored := at(5)
		for _, c := range []struct {
			name string
			keyState
			want
		}{
			{"absent", keyState{}, tc.absent},
			{"readable", keyState{stored: readable, presence: readable, object: stored, version: headerOf(stored)}, tc.readable},
			{"corrupt", keyState{stored: corrupt, presence: corrupt, version: headerOf(stored)}, tc.corrupt},
		} {
			t.Run(tc.name+"/"+c.name, func(t *testing.T) {
				k, before := c.keyState, c.keyState
				no := func(cache.DeltaType, *object.Object) bool { return false }
				got, outcome := k.take(cache.Delta{Type: tc.delta, Object: tc.object}, tc.list, no)
				require.Equal(t, c.want, want{outcome, got.Type, k.presence, k.version.RV})
				if outcome != taken {
					require.Equal(t, before, k)
					require.Zero(t, got)
					yes := func(cache.DeltaType, *object.Object) bool { return true }
					_, again := k.take(cache.Delta{Type: tc.delta, Object: tc.object}, tc.list, yes)
					require.Equal(t, outcome == replay, again == taken, "an event that is not newer may be a new state")
					return
				}
				o, _ := tc.object.(*object.Object)
				want := store.Transition{Type: got.Type, RV: headerOf(o).RV, Object: o, Old: before.object}
				require.Equal(t, want, got)
				require.Equal(t, 1, k.taken)
				require.Equal(t, k.presence == readable, k.object != nil)

				k.take(cache.Delta{Type: cache.Updated, Object: at(7)}, false, no)
				require.Equal(t, keyState{
					stored: before.stored, presence: readable, object: k.object, version: k.version,
					taken: 2, first: got.RV, last: "7",
				}, k)
			})
		}
	}
}
