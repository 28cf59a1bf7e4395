package format

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/history"
)

// FuzzDecode gives arbitrary bytes to every decoder. None may panic, and what a decoder
// accepts is encoded to the same bytes again if the encoding is unique.
func FuzzDecode(f *testing.F) {
	key := history.Key("7")
	journal, err := EncodeJournalEntry(NewCodecs(), key, []string{"a\x00b", "a\x00c"},
		func(addr string) ([]byte, bool) { return []byte("value"), addr == "a\x00c" })
	require.NoError(f, err)
	number := EncodeNumber("pods", KeyGen, 3)
	rows := history.Entry{Key: "ns/a", Deleted: true, Time: 1, RowsSince: "3", Rows: []store.AttributesRow{{RV: "4", Values: []string{"a=b", ""}}, {RV: "7"}}}
	for _, b := range [][]byte{
		EncodeFeedEntry(key, rows), nil, journal, number, EncodeDict(key, []byte("content")), EncodeDictIDs("pods", []uint32{1, 2}),
		EncodeFeedEntry(key, history.Entry{Key: "ns/a", Time: 1, FirstTime: 1, FirstRV: "7"}),
		append(EncodeEncryptionHeader([8]byte{1}, make([]byte, 32)), "tag"...), TxStamp{Tx: 9, Clean: true, Boot: "boot"}.Encode(),
	} {
		f.Add(key, b)
	}
	f.Add(history.GapKey("9"), EncodeFeedEntry(history.GapKey("9"), history.Entry{Time: 1, FirstRV: "7", Gap: true}))
	codecs := NewCodecs()
	f.Fuzz(func(t *testing.T, key, b []byte) {
		if cells, err := DecodeJournalEntry(codecs, new(JournalRoom), 0, key, b); err == nil {
			for _, ref := range cells.Cells {
				cells.Cell(ref)
			}
		}
		if rv, e, err := DecodeFeedEntry(key, b); err == nil {
			again := EncodeFeedEntry(key, e)
			_, same, err := DecodeFeedEntry(key, again)
			require.NoError(t, err)
			require.Equal(t, e, same, rv)
		}
		if content := DecodeDict(key, b); content != nil && !bytes.Equal(EncodeDict(key, content), b) {
			t.Error("a dictionary is not the one that was encoded")
		}
		if n, err := DecodeNumber("pods", key, b); err == nil {
			require.Equal(t, b, EncodeNumber("pods", key, n))
		}
		if ids, err := DecodeDictIDs("pods", b); err == nil && b != nil {
			require.Equal(t, b, EncodeDictIDs("pods", ids))
		}
		if s, ok := DecodeTxStamp(b); ok {
			require.Equal(t, b, s.Encode())
		}
		if id, salt, tag, ok := DecodeEncryptionHeader(b); ok {
			require.Equal(t, b, append(EncodeEncryptionHeader(id, salt), tag...))
		}
	})
}

// Every single-bit flip of a value with a checksum is noticed, whatever its kind.
func TestChecksum_FlippedBit_IsNoticed(t *testing.T) {
	key := history.Key("7")
	journal, err := EncodeJournalEntry(NewCodecs(), key, []string{"a\x00b"}, func(string) ([]byte, bool) { return []byte("value"), false })
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		value  []byte
		decode func(key, b []byte) bool // reports whether b was accepted
	}{
		{"journal entry", journal, func(key, b []byte) bool {
			_, err := DecodeJournalEntry(NewCodecs(), new(JournalRoom), 0, key, b)
			return err == nil
		}},
		{"feed entry", EncodeFeedEntry(key, history.Entry{Key: "ns/a", FirstRV: "7"}), func(key, b []byte) bool { _, _, err := DecodeFeedEntry(key, b); return err == nil }},
		{"feed entry with rows", EncodeFeedEntry(key, history.Entry{Key: "ns/a", Rows: []store.AttributesRow{{RV: "7", Values: []string{"a=b"}}}}), func(key, b []byte) bool { _, _, err := DecodeFeedEntry(key, b); return err == nil }},
		{"dictionary", EncodeDict(key, []byte("content")), func(key, b []byte) bool { return DecodeDict(key, b) != nil }},
		{"value", WithChecksum("pods", key, []byte("{}")), func(key, b []byte) bool { _, err := VerifyChecksum("pods", key, b); return err == nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.True(t, c.decode(key, c.value))
			require.False(t, c.decode(history.Key("8"), c.value), "under another name")
			for bit := range 8 * len(c.value) {
				b := bytes.Clone(c.value)
				b[bit/8] ^= 1 << (bit % 8)
				require.False(t, c.decode(key, b), "bit %d", bit)
			}
		})
	}
}
