package bolt

import (
	"io/fs"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// SetOrigin stores the origin of the file's content, see Origin.
func (db *DB) SetOrigin(origin string) error {
	return db.hidden(func(tx *boltfile.Tx) error { return tx.Bucket(format.BucketMeta).Put(format.KeyOrigin, []byte(origin)) })
}

// Origin returns the snapshot that the content of the file was restored from, which may be another
// machine's; empty for none. The origin never changes while the file exists.
func (db *DB) Origin() (origin string, err error) {
	err = db.view(func(tx *boltfile.Tx) error {
		origin = string(tx.Bucket(format.BucketMeta).Get(format.KeyOrigin))
		return nil
	})
	return origin, err
}

// ChownLike gives a new file or directory the owner of another: a command run by root may create
// files that an agent must be able to open.
func ChownLike(path string, like fs.FileInfo) error { return boltfile.ChownLike(path, like) }
