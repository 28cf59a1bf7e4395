package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// Format is the version of the file format that this package writes.
const Format = 1

// The header of a file: magic, format, length of the manifest, the manifest, and a CRC-32C of
// these. One zstd frame follows, and a SHA-256 of everything before it.
const (
	magic         = "\x89snapc\r\n" // not text: a transfer as text would change it
	fixedBytes    = len(magic) + 8
	checksumBytes = 4
	digestBytes   = 32

	// maxManifestBytes limits the bytes that are read before their checksum is verified.
	maxManifestBytes = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Manifest describes the content of a snapshot. Its JSON is stable: fields are added, not changed.
type Manifest struct {
	Created     time.Time   `json:"created"`
	Writer      string      `json:"writer,omitempty"` // version of the program that made it
	Database    Database    `json:"database"`
	Collections collections `json:"collections"` // ordered by ID
}

// Database is the database file in a snapshot.
type Database struct {
	Format int    `json:"format"`        // of the database, see store/bolt
	Key    string `json:"key,omitempty"` // id of its encryption key
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hexadecimal
}

// Collection is one collection in a snapshot.
type Collection struct {
	store.Info
	Synced bool `json:"synced"`

	// ResourceVersion is the checkpoint, and Cluster the identity of its cluster.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Cluster         string `json:"cluster,omitempty"`

	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"` // length of the objects' JSON

	// Proven is when the collection was last known to be complete.
	Proven time.Time `json:"proven,omitzero"`
}

// Objects returns the number of objects in all synced collections.
func (m *Manifest) Objects() int64 {
	var n int64
	for _, c := range m.Collections {
		if c.Synced {
			n += c.Objects
		}
	}
	return n
}

func (m *Manifest) encode() ([]byte, error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxManifestBytes {
		return nil, fmt.Errorf("the manifest has %d bytes, more than %d", len(raw), maxManifestBytes)
	}
	b := append([]byte(nil), magic...)
	b = binary.BigEndian.AppendUint32(b, Format)
	b = binary.BigEndian.AppendUint32(b, uint32(len(raw))) //nolint:gosec // checked above
	b = append(b, raw...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// ReadManifest returns the manifest of the snapshot at path, and the length of the file. It
// verifies only the header, and that a database can be as the manifest claims. Errors wrap [ErrNoSnapshot],
// [ErrForeign] or [store.ErrNewerFormat], or are a *store.CorruptionError.
func ReadManifest(path string) (*Manifest, int64, error) {
	f, size, err := open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	m, err := readManifest(f, path)
	return m, size, err
}

func open(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, fmt.Errorf("%s: %w", path, ErrNoSnapshot)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open snapshot: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open snapshot: %w", err), f.Close())
	}
	return f, info.Size(), nil
}

func readManifest(r io.Reader, path string) (*Manifest, error) {
	head := make([]byte, fixedBytes)
	n, err := io.ReadFull(r, head)
	switch {
	case n < len(magic) || string(head[:len(magic)]) != magic:
		if err != nil && !short(err) {
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
		return nil, fmt.Errorf("%s: %w", path, ErrForeign)
	case err != nil:
		return nil, readError(path, err)
	}
	if v := binary.BigEndian.Uint32(head[len(magic):]); v != Format {
		if v > Format {
			return nil, fmt.Errorf("%s: %w: %d, this version reads up to %d", path, store.ErrNewerFormat, v, Format)
		}
		return nil, corrupt(path, "its format is 0")
	}
	length := binary.BigEndian.Uint32(head[len(magic)+4:])
	if length > maxManifestBytes {
		return nil, corrupt(path, "the length of its manifest is out of range")
	}
	raw, err := io.ReadAll(io.LimitReader(r, int64(length)+checksumBytes))
	if err == nil && len(raw) < int(length)+checksumBytes {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, readError(path, err)
	}
	raw, sum := raw[:length], raw[length:]
	if binary.LittleEndian.Uint32(sum) != crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, raw) {
		return nil, corrupt(path, "the checksum of its manifest does not match")
	}
	m := &Manifest{}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, corrupt(path, "its manifest: "+err.Error())
	}
	if m.Database.Format > bolt.EncryptedFormat {
		return m, nil // a newer version may make claims that this one does not know
	}
	if err := m.validate(); err != nil {
		return nil, corrupt(path, "its manifest: "+err.Error())
	}
	return m, nil
}

func short(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// readError returns a corruption error for a file that ends too early, a read error for any other.
func readError(path string, err error) error {
	if short(err) {
		return corrupt(path, "the file is truncated")
	}
	return fmt.Errorf("read snapshot: %w", err)
}

func corrupt(path, reason string) error {
	return &store.CorruptionError{Path: path, Reason: reason}
}
