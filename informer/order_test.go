package informer_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// collections opens an empty collection of each store.
var collections = []struct {
	name string
	open func(*testing.T) store.Collection
}{
	{"memory", memoryCollection},
	{"durable", func(t *testing.T) store.Collection {
		db := boltDB(t, filepath.Join(t.TempDir(), "db"))
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		c, err := db.Open(storetest.Info("test"))
		require.NoError(t, err)
		return c
	}},
}

// history holds a server's objects, name → resourceVersion, and computes the calls that a handler
// must get when they change.
type history struct {
	rv      int
	objects map[string]int
}

func (h *history) put(name string) (o *object.Object, call string) {
	h.rv++
	call = fmt.Sprintf("add %s@%d false", name, h.rv)
	if old, ok := h.objects[name]; ok {
		call = fmt.Sprintf("update %s@%d %s@%d", name, old, name, h.rv)
	}
	h.objects[name] = h.rv
	return obj(name, "u", h.rv), call
}

func (h *history) remove(name string) (o *object.Object, call string) {
	h.rv++
	if _, ok := h.objects[name]; ok {
		call = fmt.Sprintf("delete %s@%d", name, h.rv)
		delete(h.objects, name)
	}
	return obj(name, "u", h.rv), call
}

// relisted returns the calls of a handler that had the objects of before and gets a list in the
// given order: deletions by name, then the list.
func (h *history) relisted(before map[string]int, list []string) (calls []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := h.objects[name]; !ok {
			calls = append(calls, fmt.Sprintf("delete unknown %s@%d", name, before[name]))
		}
	}
	for _, name := range list {
		switch old, ok := before[name]; {
		case !ok:
			calls = append(calls, fmt.Sprintf("add %s@%d false", name, h.objects[name]))
		case old != h.objects[name]:
			calls = append(calls, fmt.Sprintf("update %s@%d %s@%d", name, old, name, h.objects[name]))
		}
	}
	return calls
}

// change is a put, or a removal, of a name.
type change struct {
	name   string
	remove bool
}

func (h *history) change(c change) (o *object.Object, call string) {
	if c.remove {
		return h.remove(c.name)
	}
	return h.put(c.name)
}

// event makes a change and queues it. It returns the call of a handler.
func (h *history) event(t require.TestingT, p *harness, c change) []string {
	o, call := h.change(c)
	send := p.queue.Update
	if c.remove {
		send = p.queue.Delete
	}
	require.NoError(t, send(o))
	if call == "" {
		return nil
	}
	return []string{call}
}

// relist makes changes that only a list brings, which names the objects in order or from
// last to first. It returns the calls of a handler.
func (h *history) relist(t *testing.T, p *harness, missed []change, backwards bool) []string {
	before := maps.Clone(h.objects)
	for _, c := range missed {
		h.change(c)
	}
	h.rv++
	list := slices.Sorted(maps.Keys(h.objects))
	if backwards {
		slices.Reverse(list)
	}
	var objects []*object.Object
	for _, name := range list {
		objects = append(objects, obj(name, "u", h.objects[name]))
	}
	p.list(t, store.ReasonExpired, strconv.Itoa(h.rv), objects...)
	return h.relisted(before, list)
}

// action is one step of a random story. They are all drawn before it begins, as rapid ends
// a story at any draw, which a bubble of synctest does not survive.
type action struct {
	op, number int
	change     change
	missed     []change
}

func actions(names []string, most int) *rapid.Generator[[]action] {
	changes := rapid.Custom(func(t *rapid.T) change {
		return change{rapid.SampledFrom(names).Draw(t, "name"), rapid.IntRange(0, 2).Draw(t, "remove") == 0}
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) action {
		a := action{op: rapid.IntRange(0, 9).Draw(t, "op"), number: rapid.IntRange(0, 100).Draw(t, "number"), change: changes.Draw(t, "change")}
		if a.op == 0 {
			a.missed = rapid.SliceOfN(changes, 0, 6).Draw(t, "missed")
		}
		return a
	}), 1, most)
}

// Handlers get the events of all objects in the order of the stream, however it is cut into
// batches, and of a list the deletions first and then the objects in the list's order.
func TestStreamOrder(t *testing.T) {
	for _, c := range collections {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				story := actions([]string{"a", "b", "c", "d", "e"}, 40).Draw(rt, "story")
				budget := rapid.SampledFrom([]int64{0, 2000}).Draw(rt, "budget") // that of a few objects ends batches too
				var want, got []string
				synctest.Test(t, func(t *testing.T) { want, got = streamOrder(t, c.open(t), story, budget) })
				require.Equal(rt, want, got)
			})
		})
	}
}

func streamOrder(t *testing.T, coll store.Collection, story []action, budget int64) (want, got []string) {
	h := &history{rv: 10, objects: map[string]int{"a": 1, "b": 2}}
	fill(t, coll, storetest.Put(obj("a", "u", 1)), storetest.Put(obj("b", "u", 2)))
	p := startQueue(t, coll, time.Minute, deltafifo.Options{MaxBytes: budget}, informer.ProcessorOptions{})
	want = []string{"add a@1 true", "add b@2 true"}
	for _, a := range story {
		switch a.op {
		case 0:
			want = append(want, h.relist(t, p, a.missed, a.number%2 == 0)...)
		case 1: // a batch ends here
			time.Sleep(time.Hour)
			synctest.Wait()
		default:
			want = append(want, h.event(t, p, a.change)...)
		}
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	return want, p.rec.take()
}
