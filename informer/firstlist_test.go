package informer_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
)

// syncedUnreadable is a collection that can't be read once it has synced, while broken.
type syncedUnreadable struct {
	store.Collection
	broken atomic.Bool
}

var errUnreadable = errors.New("input/output error")

func (c *syncedUnreadable) View() (store.View, error) {
	if c.broken.Load() && c.State().Synced {
		return nil, errUnreadable
	}
	return c.Collection.View()
}

// TestFirstListUnreadable: if the objects can't be read after the first list is stored, handlers are not synced
// and get nothing until they have got all objects, and then each change once.
func TestFirstListUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := &syncedUnreadable{Collection: memoryCollection(t)}
		coll.broken.Store(true)
		var errs []error
		p := startWith(t, coll, informer.ProcessorOptions{OnError: func(err error) { errs = append(errs, err) }})
		early, err := p.proc.AddHandler(&recorder{}, cache.HandlerOptions{})
		require.NoError(t, err)
		p.list(t, store.ReasonInitial, "10", obj("a", "1", 3), obj("b", "2", 5))
		synctest.Wait()
		require.Empty(t, p.rec.take())
		require.False(t, early.HasSynced())
		require.NotEmpty(t, errs)
		require.ErrorIs(t, errs[0], errUnreadable)
		_, err = p.proc.AddHandler(&recorder{}, cache.HandlerOptions{})
		require.ErrorIs(t, err, errUnreadable, "a handler that joins")

		require.NoError(t, p.queue.Update(obj("a", "1", 11)))
		synctest.Wait()
		require.Empty(t, p.rec.take())
		coll.broken.Store(false)
		require.NoError(t, p.queue.Update(obj("b", "2", 12)))
		synctest.Wait()
		require.Equal(t, []string{"add a@11 true", "add b@5 true", "update b@5 b@12"}, p.rec.take())
		require.True(t, early.HasSynced())
	})
}
