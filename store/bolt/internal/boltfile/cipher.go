package boltfile

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// fileCipher encrypts and decrypts the values of one file. Keys are in clear.
//
// A value is sealed with AES-256-GCM: 12 random bytes, the content, a tag of 16 bytes. Its
// associated data is its address, so that it can't be moved. One salt and key may encrypt 2^32
// values, ten a second for more than a decade.
type fileCipher struct {
	key    *EncryptionKey
	salt   []byte
	values cipher.AEAD
}

// newFileCipher returns the cipher of a new file, nil without a key.
func newFileCipher(k *EncryptionKey) (*fileCipher, error) {
	if k == nil {
		return nil, nil //nolint:nilnil // a file without encryption
	}
	salt := make([]byte, format.SaltBytes)
	_, _ = rand.Read(salt) // never fails
	return deriveCipher(k, salt)
}

func deriveCipher(k *EncryptionKey, salt []byte) (*fileCipher, error) {
	values, err := hkdf.Key(sha256.New, k.secret, salt, "snapcache values", secretBytes)
	var block cipher.Block
	if err == nil {
		block, err = aes.NewCipher(values)
	}
	c := &fileCipher{key: k, salt: salt}
	if err == nil {
		c.values, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	return c, nil
}

// header returns the encryption header of the file.
func (c *fileCipher) header() []byte {
	b := format.EncodeEncryptionHeader(c.key.id, c.salt)
	return c.values.Seal(b, nil, nil, headerData(b))
}

// headerData returns the data that the tag of a header authenticates: the header's address, and the
// header without its tag.
func headerData(b []byte) []byte {
	return append([]byte(format.Address([][]byte{format.BucketMeta}, format.KeyEncryption)), b...)
}

// errNotOpened means that bytes were not encrypted with this key, or not for this address.
var errNotOpened = errors.New("it was changed")

// openCipher finds the key that an encryption header names and returns its cipher. The
// error wraps store.ErrKey if the key is not among keys.
func openCipher(header []byte, keys Keyring) (*fileCipher, error) {
	id, salt, tag, ok := format.DecodeEncryptionHeader(header)
	if !ok {
		return nil, fmt.Errorf("meta: encryption: %w", errNotOpened)
	}
	var given []string
	for _, k := range keys.all() {
		c, err := k.verify(salt, tag)
		switch {
		case k.id == id:
			return c, err
		case err == nil: // with its own id: that in the header is corrupt, and no key is missing
			return nil, fmt.Errorf("meta: encryption: the id of the key: %w", errNotOpened)
		}
		given = append(given, k.ID())
	}
	if given == nil {
		return nil, fmt.Errorf("%w: it is encrypted with key %s, and none was given", store.ErrKey, hex.EncodeToString(id[:]))
	}
	return nil, fmt.Errorf("%w: it is encrypted with key %s, what was given is %s", store.ErrKey, hex.EncodeToString(id[:]), strings.Join(given, ", "))
}

// verify returns the cipher of a file, if tag belongs to a header with the id of k and with salt.
func (k *EncryptionKey) verify(salt, tag []byte) (*fileCipher, error) {
	c, err := deriveCipher(k, bytes.Clone(salt))
	if err != nil {
		return nil, err
	}
	if _, err := c.values.Open(nil, nil, tag, headerData(format.EncodeEncryptionHeader(k.id, salt))); err != nil {
		return nil, fmt.Errorf("meta: encryption: %w", errNotOpened)
	}
	return c, nil
}

// version returns the format version of a file with this cipher; a nil cipher is a file in clear.
func (c *fileCipher) version() uint32 {
	if c == nil {
		return format.PlainFormat
	}
	return format.EncryptedFormat
}

// keyID returns the id of the cipher's key, empty for a file in clear.
func (c *fileCipher) keyID() string {
	if c == nil {
		return ""
	}
	return c.key.ID()
}

// writeHeader stores the format version and the encryption header in meta.
func (c *fileCipher) writeHeader(meta *Bucket) error {
	if err := meta.Put(format.KeyFormat, binary.BigEndian.AppendUint32(nil, c.version())); err != nil {
		return err
	}
	if c == nil {
		return meta.Delete(format.KeyEncryption)
	}
	return meta.Put(format.KeyEncryption, c.header())
}

// Unlock returns an error unless the file is a database in a format that this version reads, and its
// key is among keys. If the key is missing, the error wraps store.ErrKey.
func (f *File) Unlock(keys Keyring) error {
	return f.View(func(tx *Tx) error {
		corrupt := func(reason string) error { return &store.CorruptionError{Path: f.path, Reason: reason} }
		meta := tx.Bucket(format.BucketMeta)
		if meta == nil || string(meta.Get(format.KeyMagic)) != format.Magic {
			return fmt.Errorf("%s: %w", f.path, store.ErrForeign)
		}
		raw := meta.Get(format.KeyFormat)
		if len(raw) != 4 {
			return corrupt("format version is missing")
		}
		version := binary.BigEndian.Uint32(raw)
		header := meta.Get(format.KeyEncryption)
		switch {
		case version > format.EncryptedFormat:
			return fmt.Errorf("%s: %w: %d, this version reads up to %d", f.path, store.ErrNewerFormat, version, format.EncryptedFormat)
		case version == format.OldEncrypted:
			return fmt.Errorf("%s: %w: %d, an encryption that is not read any more: delete the file, and its collections are listed again", f.path, store.ErrOldFormat, version)
		case tx.Bucket(format.BucketDict) == nil || tx.Bucket(format.BucketCollections) == nil:
			return corrupt("a top-level bucket is missing")
		case (version == format.EncryptedFormat) != (header != nil):
			return corrupt("meta: whether the file is encrypted is not clear")
		case header == nil:
			return nil
		}
		cipher, err := openCipher(header, keys)
		switch {
		case errors.Is(err, store.ErrKey):
			return fmt.Errorf("%s: %w", f.path, err)
		case err != nil:
			return corrupt(err.Error())
		}
		f.cipher = cipher
		return nil
	})
}

// KeyID returns the id of the key that the file is encrypted with, empty for none.
func (f *File) KeyID() string { return f.cipher.keyID() }

// Version returns the version of the file's format.
func (f *File) Version() int { return int(f.cipher.version()) }

// NeedsRekey reports whether the file must be rewritten under the primary key, or in clear.
func (f *File) NeedsRekey(keys Keyring) bool {
	if keys.Primary == nil {
		return f.cipher != nil
	}
	return f.cipher.keyID() != keys.Primary.ID()
}

// unopened stands for a value that can't be decrypted. No decoder accepts it, so a read reports the
// value as corrupt.
var unopened = []byte{}

func (c *fileCipher) seal(value []byte, address string) []byte {
	return c.values.Seal(nil, nil, value, []byte(address))
}

func (c *fileCipher) open(sealed []byte, address string) []byte {
	value, err := c.values.Open(nil, nil, sealed, []byte(address))
	if err != nil || value == nil {
		return unopened
	}
	return value
}
