package writeback

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// TestPack_CellsThatChangedMeanwhile: others may write between Unpacked and Pack, and between two calls of
// Pack. What they wrote stays, and the dirty bytes are those of all cells.
func TestPack_CellsThatChangedMeanwhile(t *testing.T) {
	l := New(Options{Clock: clocktesting.NewFakeClock(start), Interval: time.Second, OnTime: func() {}})
	at := func(key string) string { return format.Address(format.CollectionPath("a"), []byte(key)) }
	long := func(value string) Cell {
		return Cell{Value: []byte(value + "................"), Pack: func(_, v []byte) ([]byte, error) { return v[:2], nil }}
	}
	put := func(key string, c Cell) { l.Put(map[string]Cell{at(key): c}, true) }
	for _, key := range []string{"stays", "changes", "goes", "flushed"} {
		put(key, long("v1"))
	}
	addrs := l.Unpacked()
	require.Len(t, addrs, 4)
	put("changes", long("v2"))
	put("goes", Cell{Deleted: true})
	l.schedule.bytes -= l.dirty[at("flushed")]
	delete(l.dirty, at("flushed"))
	put("comes", long("v1"))
	for range 2 {
		require.NoError(t, l.Pack(addrs))
	}
	require.Equal(t, []string{at("comes")}, l.Unpacked())
	for key, want := range map[string]string{"stays": "v1", "changes": "v2", "goes": "", "comes": "v1................"} {
		c, ok := l.Snapshot().Get(at(key))
		require.True(t, ok)
		require.Equal(t, want, string(c.Value), key)
	}
	require.NoError(t, l.packAll())
	sum := 0
	for addr, n := range l.dirty {
		c, _ := l.Snapshot().Get(addr)
		require.Equal(t, c.size(addr, false), n)
		sum += n
	}
	require.Equal(t, sum, l.schedule.bytes)
}

// TestPut_WhileTheDiskIsFull: changes that wait in memory until the file can be written count with the bytes that
// they have there, so that no more wait than the limit, and with the packed ones once they are packed.
func TestPut_WhileTheDiskIsFull(t *testing.T) {
	const object = 1 << 20
	l := New(Options{Clock: clocktesting.NewFakeClock(start), Interval: time.Second, OnTime: func() {}, Logger: slog.New(slog.DiscardHandler)})
	put := func(n int) {
		addr := format.Address(format.CollectionPath("a"), []byte{byte(n)})
		l.Put(map[string]Cell{addr: {Value: make([]byte, object), Pack: func(_, v []byte) ([]byte, error) { return v[:object/8], nil }}}, true)
	}
	put(0)
	require.Less(t, l.schedule.bytes, object/2, "the file can be written")
	l.NoteFlush(errors.New("no space left on device"))
	puts := 1
	for full := false; !full; puts++ {
		put(puts)
		full, _ = l.schedule.pressure(start)
	}
	require.Equal(t, maxUnflushedBytes/object+1, puts)
	require.NoError(t, l.packAll())
	require.Less(t, l.schedule.bytes, puts*object/7)
	full, _ := l.schedule.pressure(start)
	require.False(t, full)
}
