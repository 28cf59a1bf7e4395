package format

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecordRoundTrip(t *testing.T) {
	r := Record{Codec: CodecZstd, Dict: 7, Size: 1234, UID: "u-1", RV: "99", FirstRV: "12", Payload: []byte("payload")}
	b := r.Encode([]byte("ns/a"))
	got, err := DecodeRecord([]byte("ns/a"), b)
	require.NoError(t, err)
	require.Equal(t, r, got)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if got, err := DecodeRecord([]byte("ns/a"), b); err == nil {
				t.Errorf("bit %d of byte %d flipped and not noticed: %+v", bit, i, got)
			}
			b[i] ^= 1 << bit
		}
	}
	for n := range b {
		_, err := DecodeRecord([]byte("ns/a"), b[:n])
		require.Error(t, err, "cut to %d bytes", n)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	r := Record{Codec: codecRaw, Size: 3, UID: "u", RV: "1", FirstRV: "1", Payload: []byte("abc")}
	f.Add([]byte("k"), r.Encode([]byte("k")))
	f.Fuzz(func(t *testing.T, key, b []byte) {
		if r, err := DecodeRecord(key, b); err == nil {
			if len(r.Payload) > len(b) {
				t.Fatal("the payload is longer than the record")
			}
			_, _ = NewCodecs().Decode(r, func(uint32) []byte { return nil }, nil)
		}
	})
}
