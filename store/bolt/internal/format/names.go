package format

import (
	"bytes"
	"strconv"
	"strings"
)

// Buckets and keys of a file, see the package comment of store/bolt for the tree.
var (
	BucketMeta        = []byte("meta")
	BucketDict        = []byte("dict")
	BucketCollections = []byte("c")
	BucketJournal     = []byte("journal")

	KeyMagic      = []byte("magic")
	KeyFormat     = []byte("format") // version, 4 bytes, big endian
	KeyCreated    = []byte("created")
	KeyWriter     = []byte("writer")
	KeyEncryption = []byte("encryption") // an encryption header
	KeyEpoch      = []byte("epoch")      // 8 bytes, big endian
	KeyTxStamp    = []byte("last")       // stamp of the newest transaction, see TxStamp
	KeyOrigin     = []byte("origin")     // the snapshot that the file was restored from
	KeySanitize   = []byte("scrub")      // present while free pages hold purged bytes

	// KeyFolding is present while a fold is half done and some buckets are ahead of others. Its
	// value is the sequence number of the newest journal entry that the fold moves, 8 bytes, big
	// endian: the buckets are a consistent state only together with the journal up to that entry.
	KeyFolding = []byte("folding")

	KeyEntry = []byte("entry") // the value in a journal entry's bucket

	// Keys of a collection.
	KeyInfo         = []byte("info")
	KeyState        = []byte("state")
	KeyGen          = []byte("gen")
	KeyDict         = []byte("dict")
	KeyDescription  = []byte("about")
	KeyForbiddenFor = []byte("refused") // how long the server has forbidden the read, in nanoseconds

	// Keys and buckets of a generation.
	BucketObjects = []byte("objects")
	BucketIndex   = []byte("index")
	BucketFeed    = []byte("feed")
	BucketTombs   = []byte("tombs")
	BucketDropped = []byte("dropped") // indexes that wait to be deleted
	KeyIndexes    = []byte("indexes")
	KeyBuilding   = []byte("building")
	KeyHistory    = []byte("history")
)

// Buckets are the buckets at the top of a file.
var Buckets = [][]byte{BucketMeta, BucketDict, BucketCollections, BucketJournal}

// Magic is the value under KeyMagic that marks a file as a database.
const Magic = "snapcache"

// Versions of the file format. Format 2, with encrypted names, is no longer read.
const (
	PlainFormat     = 1
	OldEncrypted    = 2
	EncryptedFormat = 3
)

// CollectionPath returns the path of a collection's bucket.
func CollectionPath(id string) [][]byte { return [][]byte{BucketCollections, []byte(id)} }

// GenName returns the name of a generation's bucket.
func GenName(n uint64) []byte { return strconv.AppendUint([]byte{'g'}, n, 10) }

// GenPath returns the path of a generation's bucket.
func GenPath(id string, gen []byte) [][]byte {
	return [][]byte{BucketCollections, []byte(id), gen}
}

// Address returns the address of a key in a file: the names of its buckets,
// joined by 0x01, then 0x00 and the key. Names of buckets have neither byte.
func Address(path [][]byte, key []byte) string {
	n := len(path) + len(key)
	for _, name := range path {
		n += len(name)
	}
	var b strings.Builder
	b.Grow(n)
	for i, name := range path {
		if i > 0 {
			b.WriteByte(1)
		}
		b.Write(name)
	}
	b.WriteByte(0)
	b.Write(key)
	return b.String()
}

// Locate returns the path and the key of an address.
func Locate(addr string) (path [][]byte, key []byte) {
	names, key, _ := bytes.Cut([]byte(addr), []byte{0})
	return bytes.Split(names, []byte{1}), key
}

// IndexKey returns the key of an index entry: value 0x00 key. Neither has a zero byte.
func IndexKey(value, key string) []byte { return []byte(value + "\x00" + key) }
