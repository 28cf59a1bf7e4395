package kubeapi

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var long = flag.Int("kubeapi.long", 1, "how many times as long TestWatchModel runs")

// TestWatchModel runs clients against an agent whose server changes objects, and that relists, resumes,
// stops and is killed. Clients read at any speed, disconnect anywhere and resume from the last event or
// bookmark, also within a coalesced replay and before or after a kill. See reflector.frame for what
// holds for each frame. At the end each client has what the server has.
func TestWatchModel(t *testing.T) {
	dir := t.TempDir()
	var restarts, cuts int
	// Fewer checks, as with -short, make more rounds; under an emulator one has to do.
	enough := minRestarts
	if os.Getenv("SNAPCACHE_TEST_EXEC") != "" {
		enough = 1
	}
	for round := 0; round < *long || restarts < enough; round++ {
		rapid.Check(t, func(rt *rapid.T) {
			var failed any // rapid's own panics are for its goroutine
			synctest.Test(t, func(*testing.T) {
				defer func() { failed = recover() }()
				watchModel(rt, dir, &restarts, &cuts)
			})
			if failed != nil {
				panic(failed)
			}
		})
	}
	t.Logf("%d restarts, %d clients that stopped within a replay", restarts, cuts)
}

// minRestarts is how often agents are started again in TestWatchModel, at least: half of
// the times they are killed first.
const minRestarts = 200

func watchModel(t *rapid.T, dir string, restarts, cuts *int) {
	w := newWorld(loud{t}, dir)
	if dir != "" {
		_ = os.Remove(w.path)
	}
	w.always = rapid.IntRange(0, 3).Draw(t, "always") > 0
	w.repeats = rapid.Bool().Draw(t, "repeats")
	w.takes = rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "takes")
	w.max = rapid.SampledFrom([]int64{600, 3000, EventsBytes, EventsBytes}).Draw(t, "bytes")
	calm := rapid.IntRange(0, 3).Draw(t, "calm") == 0 // all is in the events
	if calm {
		w.always, w.repeats, w.max = true, true, EventsBytes
	}
	w.start()
	defer w.close()
	key := rapid.SampledFrom([]string{"a/x", "a/y", "a-b/x", "b/x", "b/y"})
	change := func(t *rapid.T) {
		k := key.Draw(t, "key")
		p := &pod{ns: k[:len(k)-2], name: k[len(k)-1:], app: "web", node: "n1"}
		if was := w.objects[k]; was != nil {
			*p = *was
		}
		switch rapid.SampledFrom([]string{"label", "field", "touch", "delete", "replace"}).Draw(t, "change") {
		case "label":
			p.app = map[string]string{"web": "db", "db": "web"}[p.app]
		case "field":
			p.node = map[string]string{"n1": "", "": "n1"}[p.node]
		case "delete":
			if p.rv > 0 {
				p = nil
			}
		case "replace": // the server sends the deletion first
			if p.rv > 0 {
				w.put(k, nil)
			}
			p.uid = ""
		}
		w.put(k, p)
	}
	for range rapid.IntRange(0, 6).Draw(t, "objects") {
		change(t)
	}
	w.list()
	settle := func() {
		time.Sleep(3 * time.Second)
		synctest.Wait()
	}
	settle()
	var clients []*reflector
	for range 4 {
		clients = append(clients, &reflector{
			selection: rapid.SampledFrom(selections).Draw(t, "selection"), w: w, bookmarks: rapid.IntRange(0, 2).Draw(t, "bookmarks") > 0,
			streaming: rapid.Bool().Draw(t, "streaming"), slow: rapid.IntRange(0, 3).Draw(t, "slow") == 0,
		})
	}
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	client := func(t *rapid.T) *reflector { return rapid.SampledFrom(clients).Draw(t, "client") }
	read := func(c *reflector, n int) {
		synctest.Wait()
		if c.stream != nil && c.slow {
			c.stream.pass(rapid.IntRange(1, 5).Draw(t, "writes"))
			synctest.Wait()
		}
		c.read(n)
	}
	racing := rapid.Bool().Draw(t, "racing")
	t.Repeat(map[string]func(*rapid.T){
		"": func(*rapid.T) {
			if !racing {
				synctest.Wait()
			}
		},
		"change": func(t *rapid.T) {
			for range rapid.IntRange(1, 5).Draw(t, "n") {
				change(t)
			}
		},
		"other":   func(*rapid.T) { w.rv++ }, // another resource
		"deliver": func(t *rapid.T) { w.deliver(rapid.IntRange(1, 6).Draw(t, "n")) },
		"all":     func(*rapid.T) { w.all() },
		"relist": func(t *rapid.T) {
			if !calm && rapid.Bool().Draw(t, "expired") {
				w.list()
			}
		},
		"settle": func(t *rapid.T) { settle() },
		"hours": func(t *rapid.T) {
			if calm {
				return
			}
			time.Sleep(time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * time.Minute)
		},
		"open": func(t *rapid.T) { client(t).open() },
		"read": func(t *rapid.T) { read(client(t), rapid.IntRange(1, 8).Draw(t, "n")) },
		"cut": func(t *rapid.T) { // within what came meanwhile
			c := client(t)
			c.close()
			for range rapid.IntRange(1, 10).Draw(t, "changes") {
				change(t)
			}
			w.all()
			settle()
			if !calm {
				w.events.Skip(w.coll.State().RV) // from the history
			}
			c.open()
			read(c, rapid.IntRange(1, 3).Draw(t, "n"))
			c.close()
		},
		"close": func(t *rapid.T) { client(t).close() },
		"restart": func(t *rapid.T) {
			if calm {
				return
			}
			*restarts++
			for _, c := range clients {
				if c.stream != nil {
					c.stream.close() // what was sent stays readable
				}
			}
			w.stop(rapid.Bool().Draw(t, "kill"))
			w.start()
		},
	})
	w.all()
	for range 3 {
		settle()
		for _, c := range clients {
			c.slow = false
			c.close()
			c.open()
		}
		settle()
		for _, c := range clients {
			c.read(1 << 20)
		}
	}
	for _, c := range clients {
		c.open()
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	for _, c := range clients {
		*cuts += c.cuts
		c.read(1 << 20)
		require.Equal(t, c.of(w.objects), c.have, "%s at %d: %v", c.name, c.rv, c.got)
		if c.bookmarks {
			require.Equal(t, strconv.Itoa(w.rv), strconv.Itoa(c.rv), "bookmarks follow the server's")
		}
	}
}

// loud is a rapid.T whose failures are seen even if a run can't be repeated.
type loud struct{ *rapid.T }

func (l loud) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format, args...)
	l.T.Errorf(format, args...)
}
