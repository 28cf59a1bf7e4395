package deltafifo

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
)

// Beside a plain set of the keys that a list has named, in any order and with some dropped again, the same
// held keys are missing, and every key that was dropped is either missing or dropped.
func TestListedModel(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	rapid.Check(t, func(t *rapid.T) {
		known := held{}
		for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "held") {
			known[key] = &object.Object{}
		}
		seen := map[string]bool{}
		l := newListed(known)
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			key := rapid.SampledFrom(names).Draw(t, "key")
			_, had := seen[key]
			if rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
				l.drop(key)
				_, noted := l.others[key]
				require.True(t, noted && l.repeated() || !had)
				if had {
					seen[key] = false
				}
				continue
			}
			again, err := l.name(key)
			require.NoError(t, err)
			require.True(t, again || !had, "a key that comes again is known as one")
			seen[key] = true
		}
		count, missing, dropped, err := l.end()
		require.NoError(t, err)
		require.Len(t, known, count)
		gone := slices.Concat(missing, dropped)
		for key := range known {
			require.Equal(t, !seen[key], slices.Contains(gone, key), "held %s", key)
		}
		for key, named := range seen {
			require.Equal(t, !named, slices.Contains(gone, key), "%s", key)
		}
		for _, key := range missing {
			require.Contains(t, known, key)
		}
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(gone))), len(gone), "no key is there twice")
	})
}

// A list in order keeps no key in memory but the held ones that it lacks.
func TestListedInOrder(t *testing.T) {
	known := held{"a": nil, "b": nil, "c": nil, "d": nil}
	l := newListed(known)
	for _, key := range slices.Sorted(maps.Keys(held{"a": nil, "aa": nil, "c": nil})) {
		again, err := l.name(key)
		require.NoError(t, err)
		require.False(t, again)
	}
	require.Empty(t, l.others)
	require.Equal(t, []string{"b"}, l.missing)
	l.close()
}

// failing is a consumer whose keys can't be read beyond the first.
type failing struct{ held }

var errKeys = errors.New("no more")

func (f failing) Keys() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { _ = yield("a", nil) && yield("", errKeys) }
}

// A list whose consumer can't be read fails at its item, or at its end, and deletes nothing.
func TestReplaceWithUnreadableKeys(t *testing.T) {
	for _, list := range [][]string{{"a"}, {"a", "b"}, {"b"}, {}} {
		q := New(Options{KnownObjects: failing{}})
		require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
		var err error
		for _, key := range list {
			err = errors.Join(err, q.ReplaceItem(obj(t, key, "u", 1)))
		}
		require.ErrorIs(t, errors.Join(err, q.EndReplace("9")), errKeys, "%v", list)
		q.AbortReplace()
		b, err := q.pop(t.Context(), 0)
		require.NoError(t, err)
		require.True(t, b.ListAborted)
		require.Empty(t, b.Deltas)
	}
}
