package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	bbolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// openBolt opens the file with the settings that this package stands on.
func openBolt(path string, opts Options) (f *boltFile, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, err = nil, &store.CorruptionError{Path: path, Reason: fmt.Sprint(p)}
		}
	}()
	if err := mappable(path, opts); err != nil {
		return nil, err
	}
	var file *os.File
	bdb, err := bbolt.Open(path, 0o600, &bbolt.Options{
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			var err error
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
		Timeout:  lockTimeout,
		ReadOnly: opts.ReadOnly,
		PageSize: pageSize,
		// The freelist is stored, so that opening does not depend on the file's size.
		NoFreelistSync: false,
		FreelistType:   bbolt.FreelistMapType,
		// The mapping is made beyond the quota at once: a remap would wait for every
		// open view, and new views for the remap. It is address space, not memory.
		InitialMmapSize: mmapBytes(opts.MaxBytes),
		MaxSize:         int(opts.MaxBytes),
		Logger:          quietLogger{},
	})
	if err == nil {
		bdb.AllocSize = allocBytes
		if !names(path, file) {
			// Whoever held the lock put another file here, and this one is nobody's.
			return nil, errors.Join(fmt.Errorf("%s: %w: it was replaced meanwhile", path, store.ErrLocked), bdb.Close())
		}
		return &boltFile{DB: bdb, raw: file}, nil
	}
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("%s: %w", path, store.ErrLocked)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return nil, fmt.Errorf("%s: %w: %w", path, store.ErrForeign, err)
	case errors.Is(err, fs.ErrPermission), errors.As(err, new(*fs.PathError)), errors.As(err, new(*os.SyscallError)):
		return nil, fmt.Errorf("open database: %w", err)
	default:
		// bbolt has no sentinel for "file size too small" and its like.
		return nil, fmt.Errorf("%s: %w: %w", path, store.ErrForeign, err)
	}
}

// names says whether path is the name of an open file.
func names(path string, file *os.File) bool {
	named, err := os.Stat(path)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && os.SameFile(named, opened)
}

// maxMapBytes32 is the largest file of a 32-bit program, which has 2 to 3 GiB of addresses for
// everything. While a file is rewritten there are two of them.
const maxMapBytes32 = 1 << 30

// mappable fails where a file, or one that may grow as its quota says, can't be mapped. It would
// be no file to set aside: a 64-bit program has no trouble with it.
func mappable(path string, opts Options) error {
	limit := opts.maxMapBytes
	switch {
	case limit > 0:
	case strconv.IntSize == 32:
		limit = maxMapBytes32
	default:
		return nil
	}
	if !opts.ReadOnly && opts.MaxBytes > limit {
		return fmt.Errorf("%s: %w: its quota is %d bytes: set store.maxSize to %d or less", path, store.ErrTooLarge, opts.MaxBytes, limit)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() <= limit {
		return nil //nolint:nilerr // whoever opens it says what is wrong with it
	}
	return fmt.Errorf("%s: %w: it has %d bytes, of at most %d: make it smaller with a 64-bit one (snapcache compact), or move it away to begin anew",
		path, store.ErrTooLarge, info.Size(), limit)
}

func mmapBytes(maxBytes int64) int {
	if strconv.IntSize == 32 {
		return 256 << 20
	}
	return int(max(maxBytes, 1<<30))
}

// createSuffix makes the name of a new database while it is written.
const createSuffix = ".new"

// create makes a new database under a temporary name and renames it, so that a
// power cut leaves either none or a whole one.
func create(path string, opts Options) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create database directory: %w", err)
	}
	tmp := path + createSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("create database: %w", err)
	}
	defer func() {
		if err != nil && !errors.Is(err, store.ErrLocked) {
			_ = os.Remove(tmp) // its room may be what is missing
		}
	}()
	bdb, err := openBolt(tmp, opts)
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	cipher, err := newFileCipher(opts.Keys.Key)
	if err != nil {
		return errors.Join(fmt.Errorf("create database: %w", err), bdb.Close())
	}
	err = bdb.Update(func(tx *fileTx) error {
		meta, err := tx.CreateBucket(format.BucketMeta)
		if err != nil {
			return err
		}
		for _, name := range [][]byte{format.BucketDict, format.BucketCollections} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return errors.Join(
			meta.Put(format.KeyMagic, []byte(format.Magic)),
			meta.Put(format.KeyCreated, []byte(time.Now().UTC().Format(time.RFC3339))),
			meta.Put(format.KeyWriter, []byte(opts.Writer)),
			cipher.sign(meta),
			sign(tx, true),
		)
	})
	if err = errors.Join(err, bdb.Close()); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return SyncDir(dir)
}

// Leftovers are names beside a database at path under which a crash may have left what
// has no meaning.
func Leftovers(path string) []string { return []string{path + createSuffix, path + compactSuffix} }

// SyncDir makes the names in a directory durable: after it returns, a rename or
// creation in dir survives a power cut.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func (db *DB) checkMeta() error {
	return db.view(func(tx *fileTx) error {
		meta := tx.Bucket(format.BucketMeta)
		if meta == nil || string(meta.Get(format.KeyMagic)) != format.Magic {
			return fmt.Errorf("%s: %w", db.path, store.ErrForeign)
		}
		version := meta.Get(format.KeyFormat)
		if len(version) != 4 {
			return &store.CorruptionError{Path: db.path, Reason: "format version is missing"}
		}
		if v := binary.BigEndian.Uint32(version); v > EncryptedFormat {
			return fmt.Errorf("%s: %w: %d, this version reads up to %d", db.path, store.ErrNewerFormat, v, EncryptedFormat)
		}
		if tx.Bucket(format.BucketDict) == nil || tx.Bucket(format.BucketCollections) == nil {
			return &store.CorruptionError{Path: db.path, Reason: "a top-level bucket is missing"}
		}
		return nil
	})
}

// quietLogger drops what bbolt logs: it formats a line for every put.
type quietLogger struct{}

func (quietLogger) Debug(...any)            {}
func (quietLogger) Debugf(string, ...any)   {}
func (quietLogger) Error(...any)            {}
func (quietLogger) Errorf(string, ...any)   {}
func (quietLogger) Info(...any)             {}
func (quietLogger) Infof(string, ...any)    {}
func (quietLogger) Warning(...any)          {}
func (quietLogger) Warningf(string, ...any) {}
func (quietLogger) Fatal(...any)            {}
func (quietLogger) Fatalf(string, ...any)   {}
func (quietLogger) Panic(...any)            {}
func (quietLogger) Panicf(string, ...any)   {}
