package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/klauspost/compress/zstd"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const tempName = ".unpacked-*"

// maxWindowBytes limits the memory that a file can make a decoder allocate.
const maxWindowBytes = 8 << 20

// Unpack writes the database in the snapshot at path to w. The caller must not use the output
// before Unpack has returned without an error. It fails with the errors of [ReadManifest], of
// reading and writing, and of ctx.
//
// progress may be nil.
func Unpack(ctx context.Context, path string, w io.Writer, progress Progress) (*Manifest, error) {
	return read(ctx, path, progress, func(body io.Reader, m *Manifest) error { return inflate(body, w, m, path) })
}

// UnpackFile is [Unpack] to a new file, which only this user may read. It does not sync the file. Before
// it writes, it compares the length in the manifest with the snapshot's, with the free space
// ([bolt.ErrNoRoom]) and with maxBytes, the quota of a database, 0 for none ([ErrQuota]).
func UnpackFile(ctx context.Context, path, file string, maxBytes int64, progress Progress) (*Manifest, error) {
	m, packed, err := ReadManifest(path)
	if err == nil {
		err = m.room(path, filepath.Dir(file), packed, maxBytes)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("unpack snapshot: %w", err)
	}
	m, err = Unpack(ctx, path, f, progress)
	return m, errors.Join(err, f.Close())
}

// intact reads all of the snapshot at path and verifies its checksum. It does not unpack it.
func intact(ctx context.Context, path string) error {
	_, err := read(ctx, path, nil, func(io.Reader, *Manifest) error { return nil })
	return err
}

// read reads a whole file and verifies its digest. use may read any part of the body.
func read(ctx context.Context, path string, progress Progress, use func(body io.Reader, m *Manifest) error) (*Manifest, error) {
	f, size, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	from := &progressReader{ctx: ctx, r: f}
	if progress != nil {
		from.each = func(done int64) { progress(StepRead, done, size) }
	}
	whole := sha256.New()
	body := io.TeeReader(io.LimitReader(from, max(int64(fixedBytes), size-digestBytes)), whole)
	m, err := readManifest(body, path)
	if err != nil {
		return nil, err
	}
	if m.Database.Format > bolt.EncryptedFormat {
		return nil, fmt.Errorf("%s: %w: its database has format %d, this version reads up to %d", path, store.ErrNewerFormat, m.Database.Format, bolt.EncryptedFormat)
	}
	if err := use(body, m); from.err != nil {
		return nil, fmt.Errorf("read snapshot: %w", from.err) // a decoder may have hidden it in its own error
	} else if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return nil, readError(path, err)
	}
	var digest [digestBytes]byte
	if _, err := io.ReadFull(from, digest[:]); err != nil {
		return nil, readError(path, err)
	}
	if [digestBytes]byte(whole.Sum(nil)) != digest {
		return nil, corrupt(path, "its checksum does not match")
	}
	return m, nil
}

// inflate decompresses the database to w, and verifies its length and checksum against the
// manifest. On an error, w may have received a part of the database.
func inflate(r io.Reader, w io.Writer, m *Manifest, path string) error {
	dec, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return err
	}
	defer dec.Close()
	sum := sha256.New()
	// Read one byte more than expected, so that a longer database is noticed.
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(dec, m.Database.Bytes+1))
	switch {
	case errors.As(err, new(*fs.PathError)): // of a file that is written
		return fmt.Errorf("unpack snapshot %s: %w", path, err)
	case err != nil:
		return corrupt(path, err.Error())
	case n != m.Database.Bytes:
		return corrupt(path, fmt.Sprintf("its database does not have the %d bytes of its manifest", m.Database.Bytes))
	case hex.EncodeToString(sum.Sum(nil)) != m.Database.SHA256:
		return corrupt(path, "the checksum of its database does not match")
	}
	return nil
}

// Open opens the database in the snapshot at path for reading. It is unpacked to a file beside it,
// or in the system's temporary directory if that fails. The file is unlinked once it is open, so
// its space is freed when the database is closed.
func Open(ctx context.Context, path string, keys bolt.Keyring, progress Progress) (db *bolt.DB, m *Manifest, err error) {
	err = unpacked(ctx, path, progress, func(file string, unpacked *Manifest) error {
		m = unpacked
		opts := bolt.Options{ReadOnly: true, MaxBytes: unpacked.Database.Bytes, Keys: keys}
		if keepsNames {
			opts.AfterClose = func() error { return os.RemoveAll(filepath.Dir(file)) }
		}
		db, err = bolt.Open(file, opts)
		return err
	})
	if err != nil && db != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, m, err
}

// Check verifies the snapshot at path and then checks the database in it, see bolt.Check. It
// returns an error if a checksum of the snapshot does not match. The report has the problems that
// the database had when the snapshot was made.
func Check(ctx context.Context, path string, keys bolt.Keyring, progress Progress) (report *bolt.CheckReport, m *Manifest, err error) {
	err = unpacked(ctx, path, progress, func(file string, unpacked *Manifest) error {
		m = unpacked
		if report, err = bolt.CheckContext(ctx, file, keys, nil); err != nil {
			return err
		}
		report.Path = path
		return nil
	})
	return report, m, err
}

// keepsNames is set if the system removes no file that is open: then Open's is removed when it is closed.
const keepsNames = runtime.GOOS == "windows"

// unpacked calls fn with the database of a snapshot, unpacked to a file that is removed then.
func unpacked(ctx context.Context, path string, progress Progress, fn func(file string, m *Manifest) error) (err error) {
	if _, _, err := ReadManifest(path); err != nil {
		return err // before anything is written
	}
	dir := filepath.Dir(path)
	tmp, err := os.MkdirTemp(dir, tempName)
	if err != nil {
		dir = os.TempDir()
		tmp, err = os.MkdirTemp(dir, tempName)
	}
	if err != nil {
		return fmt.Errorf("unpack snapshot %s: %w", path, err)
	}
	defer func() {
		if removed := os.RemoveAll(tmp); !keepsNames || err != nil {
			err = errors.Join(err, removed)
		}
	}()
	file := filepath.Join(tmp, "cache.db")
	m, err := UnpackFile(ctx, path, file, 0, progress)
	if err != nil {
		return Named(Named(err, file, dir), tmp, dir)
	}
	return Named(fn(file, m), file, path)
}
