package spool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// A record is read at its place in any order, from memory or from a file, by several readers at once. After the
// disk is full, the records from before are still read.
func TestRecords(t *testing.T) {
	decode := func(key string, stored, _ []byte) ([]byte, error) {
		if !strings.HasPrefix(string(stored), key) {
			return nil, &store.CorruptionError{Key: key}
		}
		return stored[len(key):], nil
	}
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 15, 16, 17, 5_000, bufferBytes}), 1, 40).Draw(t, "sizes")
		create := unlinkedIn(os.TempDir())
		room := rapid.Int64Range(0, 300_000).Draw(t, "room")
		if rapid.Bool().Draw(t, "full") {
			create = roomFor(room)
		}
		r := &Records{sink: newSink(rapid.IntRange(0, 20_000).Draw(t, "limit"), create)}
		defer r.sink.close()
		var places []*Place
		var wants [][]byte
		for i, size := range sizes {
			o := storetest.Object("ns", fmt.Sprint(i), "u", fmt.Sprint(i), nil, strings.Repeat("x", size))
			add := func() (*Place, error) { return r.AddObject(o) }
			if rapid.Bool().Draw(t, "as it is stored") {
				rec := store.Record{Header: store.Header{Key: o.Key()}, Stored: append([]byte(o.Key()), o.Raw()...), Decode: decode}
				add = func() (*Place, error) { return r.Add(rec) }
			}
			p, err := add()
			if err != nil {
				break
			}
			places, wants = append(places, p), append(wants, o.Raw())
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for _, i := range rand.Perm(len(places)) {
					o, err := places[i].Object()
					if err != nil || string(o.Raw()) != string(wants[i]) {
						panic(fmt.Sprintf("%d: %v, %v", i, o, err))
					}
				}
			})
		}
		wg.Wait()
	})
}
