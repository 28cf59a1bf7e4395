package boltfile

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

const (
	secretBytes = 32

	// maxKeyFileBytes is the read limit: a longer file is no key file.
	maxKeyFileBytes = 1 << 10
)

// EncryptionKey is a key that files are encrypted with: a secret of 32 bytes.
type EncryptionKey struct {
	secret []byte
	id     [format.KeyIDBytes]byte
}

// Keyring has the keys that a database is opened with. The zero value is for a database that is not
// encrypted.
type Keyring struct {
	// Primary encrypts everything that is written; nil writes in clear.
	Primary *EncryptionKey

	// Previous has further keys that an existing file may be encrypted with.
	Previous []*EncryptionKey
}

// ParseKey parses the content of a key file, see bolt.ParseKey.
func ParseKey(text []byte) (*EncryptionKey, error) {
	secret, err := base64.StdEncoding.Strict().DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(secret) != secretBytes {
		// The error contains no part of the text, which may be a truncated key.
		return nil, fmt.Errorf("it does not hold %d bytes as base64: head -c %d /dev/urandom | base64 makes a key", secretBytes, secretBytes)
	}
	id, err := hkdf.Key(sha256.New, secret, nil, "snapcache key id", format.KeyIDBytes)
	if err != nil {
		return nil, fmt.Errorf("derive the id of a key: %w", err)
	}
	return &EncryptionKey{secret: secret, id: [format.KeyIDBytes]byte(id)}, nil
}

// ReadKey reads a key file, see bolt.ReadKey.
func ReadKey(path string) (*EncryptionKey, error) {
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
	// systemd protects the directory of credentials with an ACL, which shows as permissions of the
	// group.
	// Windows has no such modes.
	if mode := info.Mode().Perm(); !credential && mode&0o077 != 0 && runtime.GOOS != "windows" {
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

// ReadKeyring reads keys from files, see bolt.ReadKeyring.
func ReadKeyring(path string, old []string) (keys Keyring, err error) {
	if path != "" {
		if keys.Primary, err = ReadKey(path); err != nil {
			return Keyring{}, err
		}
	}
	for _, path := range old {
		k, err := ReadKey(path)
		if err != nil {
			return Keyring{}, err
		}
		keys.Previous = append(keys.Previous, k)
	}
	return keys, nil
}

// ID identifies the key. It is not secret.
func (k *EncryptionKey) ID() string { return hex.EncodeToString(k.id[:]) }

// String returns the id, so that printing options does not print the secret.
func (k *EncryptionKey) String() string { return "key " + k.ID() }

// GoString is String, for %#v.
func (k *EncryptionKey) GoString() string { return k.String() }

// all returns all keys, the primary first.
func (k Keyring) all() []*EncryptionKey {
	if k.Primary == nil {
		return k.Previous
	}
	return append([]*EncryptionKey{k.Primary}, k.Previous...)
}
