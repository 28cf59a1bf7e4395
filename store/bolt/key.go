package bolt

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	secretBytes = 32

	// maxKeyFileBytes is more than a key file has: anything longer is something else.
	maxKeyFileBytes = 1 << 10
)

// Key is what databases are encrypted with: a secret of 32 bytes.
type Key struct {
	secret []byte
	id     [format.KeyIDBytes]byte
}

// Keys are what a database is opened with. The zero value is for one that is not
// encrypted.
type Keys struct {
	// Key is what all that is written is encrypted with. Where there is none, what is
	// written is in clear.
	Key *Key

	// Old are further keys that what is there may be encrypted with.
	Old []*Key
}

// ParseKey reads what is in a key file: 32 bytes as base64, with white space around it.
func ParseKey(text []byte) (*Key, error) {
	secret, err := base64.StdEncoding.Strict().DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(secret) != secretBytes {
		// Nothing of what was read: it may be a key that was only cut short.
		return nil, fmt.Errorf("it does not hold %d bytes as base64: head -c %d /dev/urandom | base64 makes a key", secretBytes, secretBytes)
	}
	id, err := hkdf.Key(sha256.New, secret, nil, "snapcache key id", format.KeyIDBytes)
	if err != nil {
		return nil, fmt.Errorf("derive the id of a key: %w", err)
	}
	return &Key{secret: secret, id: [format.KeyIDBytes]byte(id)}, nil
}

// ReadKey reads a key file, see [ParseKey]. A file that others than its owner may read
// is refused. A name without a slash is that of a credential, where the process was
// given any by systemd ($CREDENTIALS_DIRECTORY), and that of a file otherwise.
func ReadKey(path string) (*Key, error) {
	credential := false
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" && !strings.Contains(path, "/") {
		path, credential = filepath.Join(dir, path), true
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("encryption key: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("encryption key: %w", err)
	}
	// systemd guards the directory of credentials, and shows an ACL there as rights of
	// the group.
	if mode := info.Mode().Perm(); !credential && mode&0o077 != 0 {
		return nil, fmt.Errorf("encryption key %s: its mode is %#o, so that others than its owner may use it: chmod 0400", path, mode)
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFileBytes {
		return nil, fmt.Errorf("encryption key %s: it is no key file: %w", path, fs.ErrInvalid)
	}
	text := make([]byte, info.Size())
	if n, err := f.ReadAt(text, 0); n < len(text) {
		return nil, fmt.Errorf("encryption key: %w", err)
	}
	k, err := ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("encryption key %s: %w", path, err)
	}
	return k, nil
}

// ReadKeys reads the key file of what is written, empty for none, and those of keys
// that were used before.
func ReadKeys(path string, old []string) (keys Keys, err error) {
	if path != "" {
		if keys.Key, err = ReadKey(path); err != nil {
			return Keys{}, err
		}
	}
	for _, path := range old {
		k, err := ReadKey(path)
		if err != nil {
			return Keys{}, err
		}
		keys.Old = append(keys.Old, k)
	}
	return keys, nil
}

// ID tells one key from another, and nothing else about it.
func (k *Key) ID() string { return hex.EncodeToString(k.id[:]) }

// String is not the secret: whoever prints options does not print that.
func (k *Key) String() string { return "key " + k.ID() }

// GoString is the same for %#v.
func (k *Key) GoString() string { return k.String() }

// find returns the key with an id, nil where there is none.
func (k Keys) find(id [format.KeyIDBytes]byte) *Key {
	if k.Key != nil && k.Key.id == id {
		return k.Key
	}
	for _, old := range k.Old {
		if old.id == id {
			return old
		}
	}
	return nil
}

// given lists the ids.
func (k Keys) given() string {
	var ids []string
	if k.Key != nil {
		ids = append(ids, k.Key.ID())
	}
	for _, old := range k.Old {
		ids = append(ids, old.ID())
	}
	return strings.Join(ids, ", ")
}
