package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"github.com/snapcache/snapcache/store"
)

// The parts of bbolt's meta page that tell how long a file must be, as offsets from
// the start of the page. Each of the first two pages is one; the valid one with the
// higher transaction counts.
const (
	metaStart    = 16
	metaPages    = metaStart + 40 // one past the highest page in use
	metaTxid     = metaStart + 48
	metaChecksum = metaStart + 56 // FNV-1a of the bytes from metaStart
	metaEnd      = metaStart + 64

	boltMagic = 0xED0CDAED
)

// checkWhole refuses a file that ends before its last page in use. bbolt maps a file
// without asking: reading what is not there would kill the process.
func checkWhole(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	need, txid, found := int64(0), uint64(0), false
	for page := range int64(2) {
		b := make([]byte, metaEnd)
		if _, err := f.ReadAt(b, page*pageSize); err != nil {
			if errors.Is(err, io.EOF) {
				continue // bbolt says what it thinks of so short a file
			}
			return fmt.Errorf("open database: %w", err)
		}
		sum := fnv.New64a()
		_, _ = sum.Write(b[metaStart:metaChecksum]) // a hash takes everything
		if binary.NativeEndian.Uint32(b[metaStart:]) != boltMagic || binary.NativeEndian.Uint64(b[metaChecksum:]) != sum.Sum64() {
			continue
		}
		if t := binary.NativeEndian.Uint64(b[metaTxid:]); !found || t > txid {
			found, txid = true, t
			need = int64(binary.NativeEndian.Uint64(b[metaPages:])) * pageSize //nolint:gosec // a nonsense number is too large or negative, and told below
		}
	}
	// The size last: another process may have the file open and let it grow meanwhile.
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	if found && (need < 0 || need > info.Size()) {
		return &store.CorruptionError{Path: path, Reason: fmt.Sprintf("the file is cut short: %d of %d bytes", info.Size(), need)}
	}
	return nil
}
