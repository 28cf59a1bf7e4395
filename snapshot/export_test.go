package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
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

// WithStep returns the directory with a hook that Create calls between its steps.
func (d Dir) WithStep(step func(string)) Dir {
	d.step = step
	return d
}

// Intact is what Prune verifies a snapshot with.
var Intact = intact

// Lock locks the directory as another process would.
func (d Dir) Lock() (func() error, error) { return d.lock() }
