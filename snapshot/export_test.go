package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// Rehead gives a file another manifest, with valid checksums.
func Rehead(t testing.TB, whole []byte, m *Manifest) []byte {
	body := whole[fixedBytes+int(binary.BigEndian.Uint32(whole[len(magic)+4:]))+checksumBytes : len(whole)-digestBytes]
	b, err := m.encode()
	require.NoError(t, err)
	b = append(b, body...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// Craft returns a snapshot with valid checksums of bytes that may be no database. The manifest has their
// length and checksum, unless claims changes it.
func Craft(t testing.TB, database io.Reader, claims func(m *Manifest)) []byte {
	m := &Manifest{Created: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Database: Database{Format: 1}, Collections: []Collection{{Info: store.Info{ID: "pods"}}}}
	var packed bytes.Buffer
	enc, err := zstd.NewWriter(&packed, zstd.WithWindowSize(windowBytes))
	require.NoError(t, err)
	sum := sha256.New()
	m.Database.Bytes, err = io.Copy(io.MultiWriter(enc, sum), database)
	require.NoError(t, errors.Join(err, enc.Close()))
	m.Database.SHA256 = hex.EncodeToString(sum.Sum(nil))
	claims(m)
	b, err := m.encode()
	require.NoError(t, err)
	b = append(b, packed.Bytes()...)
	digest := sha256.Sum256(b)
	return append(b, digest[:]...)
}

// WithStep returns the directory with a hook that Create calls between its steps.
func (d Dir) WithStep(step func(string)) Dir {
	d.step = step
	return d
}

// Intact is what Prune verifies a snapshot with.
var Intact = intact

// Lock locks the directory as another process would.
func (d Dir) Lock() (func() error, error) { return d.lock() }
