package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"

	"github.com/snapcache/snapcache/store"
)

// The parts of bbolt's meta page that this package reads, as offsets from
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

// readMeta returns the newest of bbolt's two meta pages that is valid, nil if none is. It calls bad
// for each invalid page, with the read error, if any.
func readMeta(file io.ReaderAt, bad func(page int64, err error) error) (newest []byte, err error) {
	for page := range int64(2) {
		b := make([]byte, metaEnd)
		_, err := file.ReadAt(b, page*PageSize)
		if err != nil || !validMeta(b) {
			if err := bad(page, err); err != nil {
				return nil, err
			}
			continue
		}
		if newest == nil || binary.NativeEndian.Uint64(b[metaTxid:]) > binary.NativeEndian.Uint64(newest[metaTxid:]) {
			newest = b
		}
	}
	return newest, nil
}

func validMeta(b []byte) bool {
	sum := fnv.New64a()
	_, _ = sum.Write(b[metaStart:metaChecksum]) // a hash never fails
	return binary.NativeEndian.Uint32(b[metaStart:]) == boltMagic && binary.NativeEndian.Uint64(b[metaChecksum:]) == sum.Sum64()
}

// checkNotTruncated returns an error for a file that ends before its last page in use. bbolt maps a
// file without that check, and a read past its end would end the process.
func checkNotTruncated(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	meta, err := readMeta(f, func(_ int64, err error) error {
		if err != nil && !errors.Is(err, io.EOF) { // bbolt has its own error for a file that is too short
			return fmt.Errorf("open database: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Read the size last: another process may have the file open, and the file may grow meanwhile.
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	if meta == nil {
		return nil
	}
	need := int64(binary.NativeEndian.Uint64(meta[metaPages:])) * PageSize //nolint:gosec // a nonsense number is too large or negative, and refused
	if need < 0 || need > info.Size() {
		return &store.CorruptionError{Path: path, Reason: fmt.Sprintf("the file is cut short: %d of %d bytes", info.Size(), need)}
	}
	return nil
}
