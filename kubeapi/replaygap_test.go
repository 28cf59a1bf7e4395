package kubeapi

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReplayOverGapThenKill: a client stops within a replay over a batch with two changes of an object, which has
// left the selection in the first of them. After a kill the agent gets the changes again, one by one. The client
// must not continue from there as if it had the object's exit.
func TestReplayOverGapThenKill(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		w.repeats, w.takes = true, time.Second // one batch
		w.start()
		defer w.close()
		w.put("a/y", &pod{ns: "a", name: "y", app: "web", node: "n1"})
		w.list()
		settle := func() { time.Sleep(3 * time.Second); synctest.Wait() }
		settle()
		c := &reflector{selection: selections[3], w: w, bookmarks: true}
		require.Equal(t, "fields", c.name)
		c.open()
		defer c.close()
		c.close()
		require.Contains(t, c.have, "a/y")
		time.Sleep(5 * time.Minute)
		synctest.Wait()

		left := *w.objects["a/y"]
		left.node = ""
		w.put("a/y", &left)
		w.put("a/x", &pod{ns: "a", name: "x", app: "web", node: "n1"})
		w.put("a/y", nil)
		w.all()
		settle()
		w.events.Skip(w.coll.State().RV) // from the history
		c.open()
		synctest.Wait()
		c.read(1)
		c.close()
		require.Equal(t, w.rv-1, c.rv, "within the replay: %v", c.got)
		require.Contains(t, c.have, "a/y")

		w.stop(true)
		w.takes = 0
		w.start()
		for range 3 {
			w.deliver(1)
			w.drain()
		}
		w.all()
		settle()
		for range 2 { // the first one may get 410
			c.open()
			settle()
			c.read(100)
		}
		require.Equal(t, c.of(w.objects), c.have)
	})
}
