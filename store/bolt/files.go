package bolt

import (
	"errors"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
)

// EncryptionKey is a key that databases are encrypted with, see [ParseKey] and [ReadKey].
type EncryptionKey = boltfile.EncryptionKey

// Keyring are the keys that a database is opened with. The zero value is for a database that is not
// encrypted.
type Keyring = boltfile.Keyring

// ParseKey reads the content of a key file: 32 bytes as base64, with white space around it.
func ParseKey(text []byte) (*EncryptionKey, error) { return boltfile.ParseKey(text) }

// ReadKey reads a key file, see [ParseKey]. If others than its owner may read the file, ReadKey
// returns an error. A name without a slash names a systemd credential if $CREDENTIALS_DIRECTORY is
// set, otherwise a file.
func ReadKey(path string) (*EncryptionKey, error) { return boltfile.ReadKey(path) }

// ReadKeyring reads the primary key from the file at path, unless path is empty, and the previous
// keys from the files at old.
func ReadKeyring(path string, old []string) (Keyring, error) { return boltfile.ReadKeyring(path, old) }

// Shutdown is how the last process that wrote a file left it.
type Shutdown = boltfile.Shutdown

const (
	// Clean: the file was closed.
	Clean = boltfile.Clean
	// Crashed: the process ended without closing the file, and the machine has been up since: all
	// its writes are in the file.
	Crashed = boltfile.Crashed
	// PowerLoss: the machine stopped, or the file comes from another machine. The file has to
	// be checked before it is trusted: see [Check].
	PowerLoss = boltfile.PowerLoss
)

// LastShutdown returns how the last process left the database at path. It survives any
// corruption. If the file can't be read, the result is PowerLoss.
func LastShutdown(path string) Shutdown { return boltfile.LastShutdown(path) }

// CheckPages reads the pages of the closed database at path, and returns a *store.CorruptionError
// if they could crash a process that opens the file: bbolt follows a loop of pages until the memory
// is used up. CheckPages does not read the content; [Check] does. A page that can't be read is no
// error: reads that need it fail. If another process has the file open, the error wraps
// store.ErrLocked.
func CheckPages(path string) (problem error) {
	unlock, err := boltfile.Lock(path)
	if err != nil {
		return err
	}
	defer func() { problem = errors.Join(problem, unlock()) }()
	_, err = boltfile.CheckPages(path, func(collection, reason string) {
		if problem == nil {
			problem = &store.CorruptionError{Path: path, Collection: collection, Reason: reason}
		}
	}, func(string) {})
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	return problem
}

// Lock holds the lock of the database at path until the returned function is called. The file
// may be in any state. If another process has the file open, the error wraps store.ErrLocked.
func Lock(path string) (unlock func() error, err error) { return boltfile.Lock(path) }

// TempFiles returns the names beside a database at path under which a crash may leave
// temporary files.
func TempFiles(path string) []string {
	return []string{path + boltfile.CreateSuffix, path + compactSuffix}
}
