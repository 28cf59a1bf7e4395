package informer_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/store/storetest"
)

// A handler that is late gets the same calls as one that is not, whether its objects were in memory or in a
// file, and so does one that joined in between and is late with its initial list.
func TestLateHandler(t *testing.T) {
	const changes = 1_000
	for _, c := range collections {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coll := c.open(t)
				fill(t, coll, storetest.Put(obj("a", "u", 1)), storetest.Put(obj("b", "u", 2)))
				p := start(t, coll)
				late, joined := &gate{leave: make(chan struct{})}, &gate{leave: make(chan struct{})}
				_, err := p.proc.AddHandler(late, cache.HandlerOptions{})
				require.NoError(t, err)
				synctest.Wait()
				calls := p.rec.take()
				random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // choices of a test
				var atJoin []string
				live := map[string]int{"a": 1, "b": 2}
				for n := range changes {
					name := string(rune('a' + random.IntN(20)))
					_, exists := live[name]
					switch {
					case exists && random.IntN(4) == 0:
						delete(live, name)
						require.NoError(t, p.queue.Delete(obj(name, "u", 11+n)))
					case exists:
						live[name] = 11 + n
						require.NoError(t, p.queue.Update(obj(name, "u", 11+n)))
					default:
						live[name] = 11 + n
						require.NoError(t, p.queue.Add(obj(name, "u", 11+n)))
					}
					if random.IntN(3) == 0 { // or the changes come in larger batches
						synctest.Wait()
					}
					if n == changes/2 {
						synctest.Wait()
						calls = append(calls, p.rec.take()...)
						for name, rv := range live {
							atJoin = append(atJoin, fmt.Sprintf("add %s@%d true", name, rv))
						}
						_, err := p.proc.AddHandler(joined, cache.HandlerOptions{})
						require.NoError(t, err)
					}
				}
				synctest.Wait()
				since := p.rec.take()
				require.Greater(t, len(since), changes/3)
				close(late.leave)
				close(joined.leave)
				synctest.Wait()
				require.Equal(t, append(calls, since...), late.take())
				got := joined.take()
				require.ElementsMatch(t, atJoin, got[:len(atJoin)])
				require.Equal(t, since, got[len(atJoin):])
			})
		})
	}
}

// The objects of the changes that a late handler has not got yet are not in memory, also while it is getting
// its initial list. The store may have their newest states there, compressed.
func TestLateHandlerInBoundedMemory(t *testing.T) {
	p := startWithMany(t)
	h, joined := newHolder(t), &gate{leave: make(chan struct{})}
	for _, h := range []cache.ResourceEventHandler{h, joined} {
		_, err := p.proc.AddHandler(h, cache.HandlerOptions{})
		require.NoError(t, err)
	}
	leave := sync.OnceFunc(func() { close(joined.leave) })
	t.Cleanup(leave)
	require.NoError(t, p.queue.Update(many(0, 100_000)))
	<-h.wait
	p.rec.drop(t, 1)
	before := liveHeap()
	for n := 1; n < manyObjects; n++ {
		require.NoError(t, p.queue.Update(many(n, 100_000)))
	}
	p.rec.drop(t, manyObjects-1)
	requireGrown(t, before, manyBytes)
	leave()
	h.requireRight(t, manyObjects)
	joined.drop(t, 2*manyObjects)
}
