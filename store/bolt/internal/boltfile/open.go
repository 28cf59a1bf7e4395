package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	bbolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

const (
	// PageSize is fixed, so that a file moves between machines.
	PageSize = 4096

	// AllocBytes is how much the file grows at a time. bbolt's own 16 MiB would
	// round a small quota up by as much.
	AllocBytes = 1 << 20

	// lockTimeout is how long Open waits for another process to release the file:
	// long enough for a reader that is just closing, not for a running agent.
	lockTimeout = 500 * time.Millisecond
)

// Options are the settings of a file.
type Options struct {
	MaxBytes int64 // quota; writes that would grow the file further fail; 0 for none
	ReadOnly bool  // opens an existing file beside other readers
}

// Open opens the file at path, and creates an empty one if there is none and it is not opened for
// reading only. It does not read the content, see Unlock. It refuses to write on a network file system.
func Open(path string, opts Options) (*File, error) {
	if !opts.ReadOnly {
		if err := refuseNetwork(path); err != nil {
			return nil, err
		}
	}
	return openLocal(path, opts)
}

// openLocal is Open without the check for a network file system: the directory was checked before, or
// the file is scratch, which may be anywhere.
func openLocal(path string, opts Options) (f *File, err error) {
	err = Guarded(path, func() error {
		f, err = open(path, opts)
		return err
	})
	return f, err
}

func open(path string, opts Options) (*File, error) {
	if err := errors.Join(mappable(path, opts, mapLimit()), checkNotTruncated(path)); err != nil {
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
		PageSize: PageSize,
		// The freelist is stored, so that opening does not depend on the file's size.
		NoFreelistSync: false,
		FreelistType:   bbolt.FreelistMapType,
		// The mapping is made beyond the quota at once: a remap would wait for every open view, and
		// new views for the remap. The mapping takes address space, not memory.
		InitialMmapSize: mmapBytes(opts.MaxBytes),
		MaxSize:         int(opts.MaxBytes),
	})
	if err == nil {
		bdb.AllocSize = AllocBytes
		if !names(path, file) {
			// The process that held the lock has put another file at path: the open one has no
			// name.
			return nil, errors.Join(fmt.Errorf("%s: %w: it was replaced meanwhile", path, store.ErrLocked), bdb.Close())
		}
		return &File{bolt: bdb, path: path, raw: file, faults: &Faults{}}, nil
	}
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("%s: %w", path, store.ErrLocked)
	case errors.Is(err, fs.ErrPermission), errors.As(err, new(*fs.PathError)), errors.As(err, new(*os.SyscallError)):
		return nil, fmt.Errorf("open database: %w", err)
	default:
		// Not a file of bbolt. It has no sentinel for "file size too small" and its like.
		return nil, fmt.Errorf("%s: %w: %w", path, store.ErrForeign, err)
	}
}

// names reports whether path is the name of an open file.
func names(path string, file *os.File) bool {
	named, err := os.Stat(path)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && os.SameFile(named, opened)
}

// refuseNetwork returns an error if the path of a database to write is on a network file system. A
// database file is mapped, its lock has to keep other machines out, and a sync has to reach the disk:
// over a network none of these is reliable, and an outdated page is corruption that no lock prevents.
// Snapshots are written and read sequentially, under checksums, so they may be anywhere.
func refuseNetwork(path string) error {
	at := path
	network, err := networkFS(at)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at { // it does not exist yet
		at = filepath.Dir(at)
		network, err = networkFS(at)
	}
	if err != nil {
		return fmt.Errorf("open database: file system of %s: %w", path, err)
	}
	if network != "" {
		return fmt.Errorf("%s: %w (%s)", path, store.ErrNetworkFS, network)
	}
	return nil
}

// maxMapBytes32 is the largest file for a 32-bit program, which has 2 to 3 GiB of address space in
// total. While a file is rewritten, two files are mapped.
const maxMapBytes32 = 1 << 30

// mapLimit returns the largest file that this program can map.
func mapLimit() int64 {
	if strconv.IntSize == 32 {
		return maxMapBytes32
	}
	return math.MaxInt64
}

// mappable returns an error if the file, or one as large as its quota, can't be mapped: it has more
// than limit bytes. Such a file must not be set aside: a 64-bit program can open it.
func mappable(path string, opts Options, limit int64) error {
	if !opts.ReadOnly && opts.MaxBytes > limit {
		return fmt.Errorf("%s: %w: its quota is %d bytes: set store.maxSize to %d or less", path, store.ErrTooLarge, opts.MaxBytes, limit)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() <= limit {
		return nil //nolint:nilerr // Open fails with the reason
	}
	return fmt.Errorf("%s: %w: it has %d bytes, of at most %d: make it smaller with a 64-bit one (snapcache compact), or move it away to begin with a new one",
		path, store.ErrTooLarge, info.Size(), limit)
}

func mmapBytes(maxBytes int64) int {
	if runtime.GOOS == "windows" {
		return 0 // a file is as large as its mapping there
	}
	if strconv.IntSize == 32 {
		return 256 << 20
	}
	return int(max(maxBytes, 1<<30))
}

// CreateSuffix is appended to the path of a new file while it is written.
const CreateSuffix = ".new"

// Create makes a new database file under a temporary name and renames it, so that a
// power cut leaves either no file or a complete one. writer is the version of the program. Create
// makes nothing on a network file system.
func Create(path, writer string, key *EncryptionKey, opts Options) error {
	if err := refuseNetwork(path); err != nil {
		return err
	}
	if err := create(path, writer, key, opts); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return files.SyncDir(filepath.Dir(path))
}

func create(path, writer string, key *EncryptionKey, opts Options) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp := path + CreateSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer func() {
		if err != nil && !errors.Is(err, store.ErrLocked) {
			_ = os.Remove(tmp) // to free its space, which may be needed
		}
	}()
	f, err := openLocal(tmp, opts)
	if err != nil {
		return err
	}
	if f.cipher, err = newFileCipher(key); err == nil {
		err = f.Update(func(tx *Tx) error { return initialise(tx, writer) })
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// initialise makes the top buckets of a new file.
func initialise(tx *Tx, writer string) error {
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
		meta.Put(format.KeyWriter, []byte(writer)),
		tx.file.cipher.writeHeader(meta),
		Stamp(tx, true),
	)
}
