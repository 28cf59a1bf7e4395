package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/snapcache/snapcache/store/bolt"
)

// A snapshot may come from anywhere, and a checksum proves only that its writer computed one. The
// manifest's claims are checked before they are shown, and before a byte is unpacked.
const (
	// maxCollections limits the memory of a manifest, whose collections may have two bytes each.
	maxCollections = 10_000

	// A database is compressed already, page by page, so a snapshot has a third of its length or more.
	// Only the first pages of a small one are mostly empty. A content of more than looseBytes and
	// maxRatio times the snapshot's length is no database.
	maxRatio   = 64
	looseBytes = 64 << 20
)

var errManyCollections = fmt.Errorf("it has more than %d collections", maxCollections)

// collections are listed in a manifest. Decoding ends at maxCollections.
type collections []Collection

// UnmarshalJSON implements [json.Unmarshaler].
func (c *collections) UnmarshalJSON(b []byte) error {
	*c = nil
	d := json.NewDecoder(bytes.NewReader(b))
	if first, err := d.Token(); err != nil || first == nil {
		return err
	} else if first != json.Delim('[') {
		return errors.New("the collections are no array")
	}
	for d.More() {
		if len(*c) == maxCollections {
			return errManyCollections
		}
		var x Collection
		if err := d.Decode(&x); err != nil {
			return err
		}
		*c = append(*c, x)
	}
	return nil
}

// validate returns an error if no database can be as the manifest claims.
func (m *Manifest) validate() error {
	if m.Database.Format < 1 || m.Database.Bytes < 1 {
		return fmt.Errorf("a database of format %d and %d bytes", m.Database.Format, m.Database.Bytes)
	}
	if sum, err := hex.DecodeString(m.Database.SHA256); err != nil || len(sum) != digestBytes {
		return errors.New("the checksum of the database is none")
	}
	if !printable(m.Writer, m.Database.Key) {
		return errors.New("the name of its writer, or of its key, has characters that can't be printed")
	}
	last := ""
	for _, c := range m.Collections {
		switch {
		case c.ID <= last:
			return fmt.Errorf("the collection %q comes after %q", c.ID, last)
		case !printable(c.ID, c.Group, c.Version, c.Resource, c.Kind, c.Namespace, c.LabelSelector, c.FieldSelector, c.ResourceVersion, c.Cluster):
			return fmt.Errorf("the collection %q has characters that can't be printed", c.ID)
		case c.Objects < 0 || c.Objects > m.Database.Bytes:
			return fmt.Errorf("the collection %s has %d objects in a database of %d bytes", c.ID, c.Objects, m.Database.Bytes)
		case c.Bytes < 0 || c.Bytes > math.MaxInt64/maxCollections:
			return fmt.Errorf("the collection %s has %d bytes", c.ID, c.Bytes)
		}
		last = c.ID
	}
	return nil
}

func printable(texts ...string) bool {
	for _, s := range texts {
		if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return false
		}
	}
	return true
}

// room returns an error unless the database of a snapshot of packed bytes may be unpacked into dir.
// maxBytes is the quota of the database, 0 for none.
func (m *Manifest) room(path, dir string, packed, maxBytes int64) error {
	claim := m.Database.Bytes
	switch {
	case claim > looseBytes && claim/maxRatio > packed:
		return corrupt(path, fmt.Sprintf("its manifest claims a database of %d bytes, which no snapshot of %d bytes has", claim, packed))
	case maxBytes > 0 && claim > maxBytes:
		return fmt.Errorf("%s: %w: its database has %d bytes, store.maxSize is %d", path, ErrQuota, claim, maxBytes)
	}
	if err := bolt.CheckFreeSpace(dir, claim); err != nil {
		return fmt.Errorf("unpack snapshot %s: %w", path, err)
	}
	return nil
}
