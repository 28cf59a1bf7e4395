package bolt

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

	"github.com/tink-crypto/tink-go/v2/daead/subtle"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// fileCipher seals and opens what is in one file.
//
// A value is sealed with AES-256-GCM: 12 random bytes, the content, 16 bytes to know it
// by. Its associated data is the address at which it is, so that it can't be moved.
// The same salt and key are good for 2^32 values, which is a decade of ten a second.
//
// A name, which is a key in a bucket, is sealed with AES-SIV (RFC 5297) and the address
// of the bucket: the same name is the same bytes, so that it can be found.
type fileCipher struct {
	key    *Key
	salt   []byte
	values cipher.AEAD
	names  *subtle.AESSIV
}

// newFileCipher is for a new file; nil where there is no key.
func newFileCipher(k *Key) (*fileCipher, error) {
	if k == nil {
		return nil, nil //nolint:nilnil // a file without encryption
	}
	salt := make([]byte, format.SaltBytes)
	_, _ = rand.Read(salt) // never fails
	return deriveCipher(k, salt)
}

func deriveCipher(k *Key, salt []byte) (*fileCipher, error) {
	c := &fileCipher{key: k, salt: salt}
	values, err := hkdf.Key(sha256.New, k.secret, salt, "snapcache values", secretBytes)
	if err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	names, err := hkdf.Key(sha256.New, k.secret, salt, "snapcache names", subtle.AESSIVKeySize)
	if err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	block, err := aes.NewCipher(values)
	if err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	if c.values, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	if c.names, err = subtle.NewAESSIV(names); err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	return c, nil
}

// header returns the encryption header of the file.
func (c *fileCipher) header() []byte {
	b := format.EncodeEncryptionHeader(c.key.id, c.salt)
	return c.values.Seal(b, nil, nil, headerData(b))
}

// headerData returns what the tag of a header authenticates: the address of the header and
// all of it but the tag.
func headerData(b []byte) []byte {
	return append([]byte(format.Address([][]byte{format.BucketMeta}, format.KeyEncryption)), b...)
}

// errNotOpened says that something was not sealed with this key, or not here.
var errNotOpened = errors.New("it was changed")

// openCipher finds the key that an encryption header names and returns its cipher. The
// error wraps store.ErrKey if the key is not among keys.
func openCipher(header []byte, keys Keys) (*fileCipher, error) {
	id, _, _, ok := format.DecodeEncryptionHeader(header)
	if !ok {
		return nil, fmt.Errorf("meta: encryption: %w", errNotOpened)
	}
	k := keys.find(id)
	switch {
	case k == nil && keys.anyOpens(header):
		return nil, fmt.Errorf("meta: encryption: the id of the key: %w", errNotOpened)
	case k == nil && keys.given() == "":
		return nil, fmt.Errorf("%w: it is encrypted with key %s, and none was given", store.ErrKey, hex.EncodeToString(id[:]))
	case k == nil:
		return nil, fmt.Errorf("%w: it is encrypted with key %s, what was given is %s", store.ErrKey, hex.EncodeToString(id[:]), keys.given())
	}
	return k.openHeader(header)
}

// openHeader returns the cipher of a file with an encryption header, if the key k made it.
func (k *Key) openHeader(header []byte) (*fileCipher, error) {
	_, salt, tag, _ := format.DecodeEncryptionHeader(header)
	c, err := deriveCipher(k, bytes.Clone(salt))
	if err != nil {
		return nil, err
	}
	rest := len(header) - len(tag)
	if _, err := c.values.Open(nil, nil, tag, headerData(header[:rest:rest])); err != nil {
		return nil, fmt.Errorf("meta: encryption: %w", errNotOpened)
	}
	return c, nil
}

// anyOpens reports whether one of the keys opens the header although its key id differs:
// the id is corrupt then, and no key is missing.
func (k Keys) anyOpens(header []byte) bool {
	_, salt, tag, _ := format.DecodeEncryptionHeader(header)
	for _, key := range append([]*Key{k.Key}, k.Old...) {
		if key == nil {
			continue
		}
		if _, err := key.openHeader(append(format.EncodeEncryptionHeader(key.id, salt), tag...)); err == nil {
			return true
		}
	}
	return false
}

// format is that of a file with this cipher, or with none where it is nil.
func (c *fileCipher) format() uint32 {
	if c == nil {
		return Format
	}
	return EncryptedFormat
}

// keyID is the id of a cipher's key, empty where there is none.
func (c *fileCipher) keyID() string {
	if c == nil {
		return ""
	}
	return c.key.ID()
}

// sign says in a file how it is encrypted.
func (c *fileCipher) sign(meta *fileBucket) error {
	if err := meta.Put(format.KeyFormat, binary.BigEndian.AppendUint32(nil, c.format())); err != nil {
		return err
	}
	if c == nil {
		return meta.Delete(format.KeyEncryption)
	}
	return meta.Put(format.KeyEncryption, c.header())
}

// unlock finds the key of a file among keys.
func (f *boltFile) unlock(path string, keys Keys) error {
	return f.View(func(tx *fileTx) error {
		meta := tx.Bucket(format.BucketMeta)
		head := meta.Get(format.KeyEncryption)
		if encrypted := binary.BigEndian.Uint32(meta.Get(format.KeyFormat)) == EncryptedFormat; encrypted != (head != nil) {
			return &store.CorruptionError{Path: path, Reason: "meta: whether the file is encrypted is not clear"}
		}
		if head == nil {
			return nil
		}
		var err error
		if f.cipher, err = openCipher(head, keys); err == nil || errors.Is(err, store.ErrKey) {
			return withPath(path, err)
		}
		return &store.CorruptionError{Path: path, Reason: err.Error()}
	})
}

func withPath(path string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// unopened stands for a value that can't be opened. It is no record, no entry and no
// anything: whoever reads it finds it damaged.
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

// unreadable is how the name of something is given that can't be opened, with the
// bytes that it has in the file behind it. No object is called so: it is no namespace.
const unreadable = "?/unreadable-"

// sealName seals a key of the bucket whose addresses begin with prefix.
func (c *fileCipher) sealName(name []byte, prefix string) []byte {
	if stored, ok := strings.CutPrefix(string(name), unreadable); ok {
		if b, err := hex.DecodeString(stored); err == nil {
			return b // it can be deleted like that
		}
	}
	b, err := c.names.EncryptDeterministically(name, []byte(prefix))
	if err != nil {
		panic(err) // only where it is as long as the address space
	}
	return b
}

// openName is the inverse of sealName. It says whether the name could be opened.
func (c *fileCipher) openName(sealed []byte, prefix string) (name []byte, ok bool) {
	name, err := c.names.DecryptDeterministically(sealed, []byte(prefix))
	if err != nil {
		return []byte(unreadable + hex.EncodeToString(sealed)), false
	}
	return name, true
}
