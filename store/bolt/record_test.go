package bolt

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecordRoundTrip(t *testing.T) {
	r := record{codec: codecZstd, dict: 7, size: 1234, uid: "u-1", rv: "99", firstRV: "12", payload: []byte("payload")}
	b := r.encode([]byte("ns/a"))
	got, err := decodeRecord([]byte("ns/a"), b)
	require.NoError(t, err)
	require.Equal(t, r, got)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if got, err := decodeRecord([]byte("ns/a"), b); err == nil {
				t.Errorf("bit %d of byte %d flipped and not noticed: %+v", bit, i, got)
			}
			b[i] ^= 1 << bit
		}
	}
	for n := range b {
		_, err := decodeRecord([]byte("ns/a"), b[:n])
		require.Error(t, err, "cut to %d bytes", n)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	r := record{codec: codecRaw, size: 3, uid: "u", rv: "1", firstRV: "1", payload: []byte("abc")}
	f.Add([]byte("k"), r.encode([]byte("k")))
	f.Fuzz(func(t *testing.T, key, b []byte) {
		if r, err := decodeRecord(key, b); err == nil {
			if len(r.payload) > len(b) {
				t.Fatal("the payload is longer than the record")
			}
			_, _ = newCodecs().decode(r, func(uint32) []byte { return nil })
		}
	})
}
