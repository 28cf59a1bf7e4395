package format

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// allocated returns the bytes that fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// frameOf returns a zstd frame whose header claims so many bytes, and that has no content.
func frameOf(claim uint32) []byte {
	b := []byte{0x28, 0xB5, 0x2F, 0xFD, 2<<6 | 1<<5} // the content size has 4 bytes; a single segment
	b = binary.LittleEndian.AppendUint32(b, claim)
	return append(b, 1, 0, 0) // an empty last block
}

// A record may claim any length, with a right checksum. Memory is allocated by its content.
func TestRecord_Claims_NeedLittleMemory(t *testing.T) {
	c := NewCodecs()
	_, err := c.Decoder(0, nil)
	require.NoError(t, err)
	for _, claim := range []uint32{MaxObjectBytes, 0} { // of the frame
		r := Record{Codec: CodecZstd, Size: MaxObjectBytes, UID: "u", RV: "1", FirstRV: "1", Payload: frameOf(claim)}
		stored := r.Encode([]byte("n/a"))
		spent := allocated(func() {
			for range 20 {
				r, err := DecodeRecord([]byte("n/a"), stored)
				require.NoError(t, err)
				_, err = c.Decode(r, nil, nil)
				require.ErrorIs(t, err, errRecordSize)
			}
		})
		require.Less(t, spent, uint64(8<<20), "bytes allocated")
	}
}

// A journal of a few kilobytes may unpack to gigabytes: its entries are refused once they have taken
// more than a journal of their length needs.
func TestJournal_Claims_NeedLittleMemory(t *testing.T) {
	c := NewCodecs()
	entry := func(cells int, value []byte) []byte {
		var addrs []string
		for i := range cells {
			addrs = append(addrs, fmt.Sprintf("%07d", i))
		}
		b, err := EncodeJournalEntry(c, []byte("k"), addrs, func(string) ([]byte, bool) { return value, value == nil })
		require.NoError(t, err)
		return b
	}
	for _, x := range []struct {
		name    string
		entry   []byte
		entries int // that fit
		limit   uint64
	}{
		{"long values", entry(1, make([]byte, 30<<20)), 2, 150 << 20},
		{"many cells", entry(400_000, nil), 2, 150 << 20},
		{"a frame without content", putFrameHeader([]byte("k"), append(make([]byte, frameBody), frameOf(MaxObjectBytes)...)), 0, 1 << 20},
	} {
		t.Run(x.name, func(t *testing.T) {
			var room JournalRoom
			read := 0
			spent := allocated(func() {
				for range 40 {
					if _, err := DecodeJournalEntry(c, &room, 0, []byte("k"), x.entry); err != nil {
						require.ErrorIs(t, err, ErrJournal)
						break
					}
					read++
				}
			})
			t.Logf("an entry of %d KiB, %d MiB allocated", len(x.entry)>>10, spent>>20)
			require.Equal(t, x.entries, read)
			require.Less(t, spent, x.limit, "bytes allocated")
		})
	}
}

// However many dictionaries a file has, few of them are in memory, and none longer than training makes.
func TestCodecs_ManyDictionaries_KeepFew(t *testing.T) {
	c := NewCodecs()
	dict := make([]byte, 64<<10)
	for id := range uint32(4 * maxDecoders) {
		_, err := c.Decoder(id, func(uint32) []byte { return dict })
		require.NoError(t, err)
		_, err = c.Encoder(id, dict)
		require.NoError(t, err)
	}
	require.Equal(t, maxEncoders, len(c.encoders)) //nolint:testifylint // Len prints them all
	require.Equal(t, maxDecoders, len(c.decoders)) //nolint:testifylint // Len prints them all
	key := DictKey(7)
	require.Len(t, DecodeDict(key, EncodeDict(key, dict)), len(dict))
	require.Nil(t, DecodeDict(key, EncodeDict(key, make([]byte, MaxDictBytes+1))))
}
