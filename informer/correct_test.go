package informer_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// TestCorrect replaces any stored state by the server's. The collection has a@3 and b@5 at the
// checkpoint 10.
func TestCorrect(t *testing.T) {
	for name, x := range map[string]struct {
		key   string
		o     *object.Object // nil for absent
		want  map[string]string
		calls []string
	}{
		"older":        {"ns/a", obj("a", "1", 2), map[string]string{"a": "2", "b": "5"}, []string{"update a@3 a@2"}},
		"newer":        {"ns/a", obj("a", "1", 20), map[string]string{"a": "20", "b": "5"}, []string{"update a@3 a@20"}},
		"as it is":     {"ns/a", obj("a", "1", 3), map[string]string{"a": "3", "b": "5"}, nil},
		"another uid":  {"ns/a", obj("a", "7", 3), map[string]string{"a": "3", "b": "5"}, []string{"update a@3 a@3"}},
		"missing":      {"ns/c", obj("c", "3", 4), map[string]string{"a": "3", "b": "5", "c": "4"}, []string{"add c@4 false"}},
		"gone":         {"ns/a", nil, map[string]string{"b": "5"}, []string{"delete unknown a@3"}},
		"gone already": {"ns/c", nil, map[string]string{"a": "3", "b": "5"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, memoryCollection(t))
				p.list(t, store.ReasonInitial, "10", obj("a", "1", 3), obj("b", "2", 5))
				synctest.Wait()
				p.rec.take()
				attention := p.queue.Attend(x.key)
				defer attention.Close()
				require.NoError(t, attention.Correct(x.o))
				synctest.Wait()
				require.Equal(t, x.want, contents(t, p.coll))
				require.Equal(t, x.calls, p.rec.take())
				require.Equal(t, "10", p.coll.State().RV)
				require.EqualValues(t, len(x.want), p.coll.State().Count)

				require.NoError(t, p.queue.Delete(obj("b", "2", 11)))
				require.NoError(t, p.queue.Update(obj("a", "1", 25)))
				synctest.Wait()
				require.Equal(t, "25", contents(t, p.coll)["a"], "a later event of the watch is newer")
			})
		})
	}
}
