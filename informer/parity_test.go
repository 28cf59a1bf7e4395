package informer_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/informer"
)

// step is one thing that happens to an informer, its server and its handlers.
type step struct {
	op    string
	names []string
}

func (s step) String() string { return s.op + " " + strings.Join(s.names, ",") }

// long is time for any backoff to pass.
const long = 3 * time.Minute

// scenario runs a script through one informer. It returns, line by line, the calls of each handler
// in each step, in their order over all objects, and after each step the content.
//
// Updates that change nothing are left out. A relist makes client-go deliver them to handlers that
// never asked for a resync; ours delivers what has changed.
func scenario(t *testing.T, script []step, make maker) (trace []string) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.elsewhere() // no list is of resourceVersion 0, which has a meaning of its own
		inf := make(t, s)
		// The default one of client-go waits by a clock outside of the test's bubble.
		require.NoError(t, inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}))
		handlers := map[string]*pods{}
		regs := map[string]cache.ResourceEventHandlerRegistration{}
		var r *running
		for _, st := range script {
			wait := time.Duration(0)
			switch st.op {
			case "start":
				r = run(t, inf)
			case "put":
				s.put(st.names[0])
			case "remove":
				s.remove(st.names[0])
			case "burst": // names in lower case are put, others removed
				for _, name := range st.names {
					if lower := strings.ToLower(name); lower == name {
						s.put(name)
					} else {
						s.remove(lower)
					}
				}
			case "recreate":
				s.remove(st.names[0])
				s.put(st.names[0])
			case "elsewhere":
				s.elsewhere()
			case "close":
				s.hangUp()
				wait = long
			case "internal error":
				s.hangUp(watch.Event{Type: watch.Error, Object: status(500, metav1.StatusReasonInternalError)})
				wait = long
			case "expired":
				s.set(func(s *server) { s.compacted = s.rv })
				s.hangUp(watch.Event{Type: watch.Error, Object: status(410, metav1.StatusReasonExpired)})
				wait = long
			case "forgotten": // events of that time are only in the list
				s.set(func(s *server) { s.listErr, s.watchErr = errors.New("down"), errors.New("down") })
				s.hangUp()
				time.Sleep(long)
				for _, name := range st.names {
					if lower := strings.ToLower(name); lower == name {
						s.put(name)
					} else {
						s.remove(lower)
					}
				}
				s.set(func(s *server) { s.compacted, s.listErr, s.watchErr = s.rv, nil, nil })
				wait = long
			case "add":
				h := &pods{}
				reg, err := inf.AddEventHandler(h)
				require.NoError(t, err)
				handlers[st.names[0]], regs[st.names[0]] = h, reg
			case "drop":
				if reg, ok := regs[st.names[0]]; ok {
					require.NoError(t, cache.ShutDownEventHandler(inf, reg))
				}
			case "index":
				_ = inf.AddIndexers(cache.Indexers{"letters": byLetters}) // taken, the second time
			}
			time.Sleep(wait)
			synctest.Wait()
			trace = append(trace, st.String())
			for _, name := range slices.Sorted(func(yield func(string) bool) {
				for name := range handlers {
					if !yield(name) {
						return
					}
				}
			}) {
				var calls []string
				for _, call := range handlers[name].take() {
					if f := strings.Fields(call); f[0] != "update" || f[1] != f[2] {
						calls = append(calls, call)
					}
				}
				trace = append(trace, fmt.Sprintf("  %s synced %v: %s", name, regs[name].HasSynced(), strings.Join(ordered(calls), ", ")))
			}
			trace = append(trace, fmt.Sprintf("  synced %v, stopped %v, RV %s", inf.HasSynced(), inf.IsStopped(), inf.LastSyncResourceVersion()), "  "+content(inf))
		}
		if r != nil {
			r.stop()
		}
		trace = append(trace, fmt.Sprintf("stopped %v: %s", inf.IsStopped(), content(inf)))
	})
	return trace
}

// ordered returns calls as client-go's order fixes them: the initial list of a handler that joins,
// and the deletions that a list found, come from a map there, so each run of these is sorted. All
// other calls stay in their place.
func ordered(calls []string) []string {
	unordered := func(call string) string {
		switch {
		case strings.HasPrefix(call, "add ") && strings.HasSuffix(call, " true"):
			return "initial list"
		case strings.HasPrefix(call, "delete unknown "):
			return "deletions"
		}
		return ""
	}
	for i := 0; i < len(calls); {
		end := i + 1
		for run := unordered(calls[i]); run != "" && end < len(calls) && unordered(calls[end]) == run; end++ {
		}
		slices.Sort(calls[i:end])
		i = end
	}
	return calls
}

// podOf returns the name of the pod of a call.
func podOf(call string) string {
	name, _, _ := strings.Cut(call, "@")
	return name[strings.LastIndexByte(name, ' ')+1:]
}

// content returns the results of all reads of an informer.
func content(inf cache.SharedIndexInformer) string {
	var all []string
	for _, o := range inf.GetStore().List() {
		p := o.(*corev1.Pod)
		all = append(all, fmt.Sprintf("%s@%s/%s", p.Name, p.ResourceVersion, p.UID))
	}
	slices.Sort(all)
	for _, index := range []string{"node", "letters"} {
		values := inf.GetIndexer().ListIndexFuncValues(index)
		slices.Sort(values)
		for _, value := range values {
			keys, err := inf.GetIndexer().IndexKeys(index, value)
			all = append(all, fmt.Sprintf("%s=%s: %v %v", index, value, keys, err))
		}
	}
	return strings.Join(all, " ")
}

// maker makes an informer of a server's objects.
type maker func(*testing.T, *server) cache.SharedIndexInformer

func ofClientGo(_ *testing.T, s *server) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(s, &corev1.Pod{}, 0, cache.Indexers{"node": byNode})
}

func st(op string, names ...string) step { return step{op, names} }

// scripts are stories in which client-go's informer and ours must behave alike.
var scripts = []struct {
	name  string
	steps []step
}{
	{"add, update and delete", []step{
		st("add", "h"), st("put", "a"), st("start"), st("put", "b"), st("put", "a"), st("remove", "b"), st("put", "b"), st("recreate", "a"),
	}},
	{"an empty list", []step{st("add", "h"), st("start"), st("put", "a")}},
	{"handlers added and removed", []step{st("start"), st("put", "a"), st("add", "h"), st("put", "b"), st("add", "i"), st("drop", "h"), st("put", "c"), st("drop", "h"), st("remove", "a")}},
	{"removed before the start", []step{st("add", "h"), st("drop", "h"), st("put", "a"), st("start"), st("put", "a")}},
	{"bookmarks", []step{st("add", "h"), st("put", "a"), st("start"), st("elsewhere"), st("elsewhere"), st("put", "a"), st("close"), st("elsewhere"), st("put", "b")}},
	{"watches end", []step{st("add", "h"), st("put", "a"), st("start"), st("close"), st("put", "a"), st("close"), st("put", "b"), st("internal error"), st("remove", "a")}},
	{"410", []step{st("add", "h"), st("put", "a"), st("start"), st("expired"), st("put", "a"), st("expired"), st("expired"), st("remove", "a")}},
	{"changes that only a list has", []step{st("add", "h"), st("burst", "a", "b", "c"), st("start"), st("forgotten", "a", "B", "d"), st("put", "a"), st("put", "b")}},
	{"another object of the same name", []step{st("add", "h"), st("burst", "a"), st("start"), st("recreate", "a"), st("forgotten", "A", "a"), st("burst", "A", "a", "A"), st("put", "a")}},
	{"bursts", []step{st("add", "h"), st("start"), st("burst", "a", "b", "a", "A", "a", "c", "b"), st("burst", "A", "B", "C", "a", "a", "a")}},
	{"an index added late", []step{st("add", "h"), st("burst", "a", "ab"), st("start"), st("index"), st("put", "b"), st("index"), st("remove", "ab")}},
	{"a handler that joins after a relist", []step{st("burst", "a", "b"), st("start"), st("forgotten", "A"), st("add", "h"), st("put", "c")}},
	{"never started", []step{st("add", "h"), st("put", "a"), st("index")}},
}

// ours are the informers that are compared with client-go's.
var ours = []struct {
	name string
	make maker
}{
	{"memory", func(_ *testing.T, s *server) cache.SharedIndexInformer { return newInformer(s) }},
	{"bolt", func(t *testing.T, s *server) cache.SharedIndexInformer {
		db := boltDB(t, filepath.Join(t.TempDir(), "db"))
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return newInformer(s, informer.WithStore(db, "pods"))
	}},
	{"bolt, JSON", func(t *testing.T, s *server) cache.SharedIndexInformer {
		db := jsonDB{boltDB(t, filepath.Join(t.TempDir(), "db"))}
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return newInformer(s, withStore(db, "pods"))
	}},
	{"bolt, all decoded", func(t *testing.T, s *server) cache.SharedIndexInformer {
		db := boltDB(t, filepath.Join(t.TempDir(), "db"))
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return newInformer(s, informer.WithStore(db, "pods"), informer.WithDecoded(informer.All))
	}},
}

func TestParity(t *testing.T) {
	for _, script := range scripts {
		t.Run(script.name, func(t *testing.T) {
			want := scenario(t, script.steps, ofClientGo)
			for _, o := range ours {
				require.Equal(t, strings.Join(want, "\n"), strings.Join(scenario(t, script.steps, o.make), "\n"), o.name)
			}
		})
	}
}

// TestParityRandomScript is TestParity on random stories.
func TestParityRandomScript(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "ab", "c"})
	burst := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "c", "A", "B", "AB", "C"}), 1, 12)
	rapid.Check(t, func(rt *rapid.T) {
		script := []step{st("burst", burst.Draw(rt, "before")...)}
		if rapid.Bool().Draw(rt, "early handler") {
			script = append(script, st("add", "h0"))
		}
		script = append(script, st("start"))
		for n := range rapid.IntRange(1, 12).Draw(rt, "steps") {
			op := rapid.SampledFrom([]string{
				"put", "remove", "recreate", "burst", "elsewhere", "close", "internal error", "expired", "forgotten", "add", "drop", "index",
			}).Draw(rt, "op")
			switch op {
			case "burst", "forgotten":
				script = append(script, st(op, burst.Draw(rt, "names")...))
			case "add":
				script = append(script, st(op, fmt.Sprintf("h%d", n+1)))
			case "drop":
				script = append(script, st(op, fmt.Sprintf("h%d", rapid.IntRange(0, n).Draw(rt, "handler"))))
			default:
				script = append(script, st(op, names.Draw(rt, "name")))
			}
		}
		want := scenario(t, script, ofClientGo)
		for _, o := range ours {
			require.Equal(rt, strings.Join(want, "\n"), strings.Join(scenario(t, script, o.make), "\n"), o.name)
		}
	})
}
