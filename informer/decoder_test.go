package informer_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/snapcache/snapcache/informer"
)

// TestDecodedAsManyAsObjects has a cache of as many decoded objects as there are: each state is decoded once, although
// the handlers get it twice, as a new state and as the one before the next.
func TestDecodedAsManyAsObjects(t *testing.T) {
	const count, rounds = 10, 5
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		db := boltDB(t, filepath.Join(t.TempDir(), "db"))
		codec := counting{informer.NewCodec(&corev1.Pod{}, core()), &sync.Mutex{}, map[string]int{}}
		inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, nil, informer.WithStore(db, "pods"),
			informer.WithScheme(core()), informer.WithCodec(codec), informer.WithDecoded(count))
		one, _ := subscribe(t, inf)
		other, _ := subscribe(t, inf)
		r := run(t, inf)
		synctest.Wait()
		for range rounds {
			for n := range count {
				s.put("p" + strconv.Itoa(n))
				synctest.Wait()
			}
		}
		require.Len(t, one.take(), rounds*count)
		require.Len(t, other.take(), rounds*count)
		want := map[string]int{}
		for rv := range rounds * count {
			want[fmt.Sprintf("p%d@%d", rv%count, rv+1)] = 1
		}
		require.Equal(t, want, codec.times)
		r.stop()
		require.NoError(t, db.Close())
	})
}

func TestDecodedWithin(t *testing.T) {
	for limit, want := range map[int64]int{math.MaxInt64: 1024, 256 << 20: 1024, 64 << 20: 256, 1 << 10: 1} {
		require.Equal(t, want, informer.DecodedWithin(limit))
	}
}
