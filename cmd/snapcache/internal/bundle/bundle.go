// Package bundle reads the objects in a support bundle of Troubleshoot (troubleshoot.sh): a tar archive,
// packed with gzip, in which the files in the folder cluster-resources are lists of objects.
//
// A bundle comes from someone else's cluster, often over someone else's network. Its objects go to a
// temporary database as they are read, and everything that an archive claims is bounded, so the memory
// is bounded by a few objects. A file that can't be read, or is cut off, costs only its missing objects.
package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const (
	// maxBytes limits the objects of a bundle, as they are in its files, and maxObjects their number.
	maxBytes   = 1 << 30
	maxObjects = 500_000

	// maxLate limits the objects that are stored one by one: a bundle has the objects of a resource together.
	maxLate = 20_000

	// maxKeyBytes limits the names of the objects, with their namespaces: the names of a list are in memory
	// until it is complete.
	maxKeyBytes = 32 << 20

	// maxFileBytes limits one file, maxObjectBytes one object as it is in a file, with blanks:
	// a kube-apiserver takes 1.5 MiB without.
	maxFileBytes   = 128 << 20
	maxObjectBytes = 8 << 20

	// maxYAMLBytes and maxYAMLNodes limit one object that is YAML, which takes some hundred times its
	// length while it is decoded: 1 MiB has 50,000 lines.
	maxYAMLBytes = 1 << 20
	maxYAMLNodes = 150_000

	// maxDiscoveryBytes limits the list of the resources: 6,000 of them. maxDefinitionBytes limits
	// the definition of a custom resource, and maxValues the values in either.
	maxDiscoveryBytes  = 4 << 20
	maxDefinitionBytes = 3 << 19
	maxValues          = 150_000

	// maxResources limits the resources. One of them holds up to budgetBytes of objects until they are written.
	maxResources = 512
	budgetBytes  = 1 << 20

	// loadBytes is the memory limit of Go's runtime while a bundle is read: without it, the garbage of a
	// large object may take as much as the object.
	loadBytes = 128 << 20
)

// ErrNone means that a file is no support bundle.
var ErrNone = errors.New("no support bundle")

// Is reports whether a file may be a support bundle: whether it is packed with gzip.
func Is(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // opened for reading
	head := make([]byte, 2)
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == "\x1f\x8b"
}

// Options are optional.
type Options struct {
	// Warn receives the name of each file that can't be read completely, why, and the number of its
	// objects that are served.
	Warn func(text string)

	// Progress receives how many bytes of the archive have been read, of how many.
	Progress func(done, total int64)
}

// Open reads the objects of a bundle, as a collection for each resource that it has a list of, into a
// temporary database without a name, which is gone when it is closed. The collections have the archive's
// time. The error is ErrNone if there is none, and ctx's once ctx is done.
func Open(ctx context.Context, file string, opts Options) (_ store.DB, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("support bundle %s: %w", file, err)
		}
	}()
	if was := debug.SetMemoryLimit(-1); was > loadBytes {
		debug.SetMemoryLimit(loadBytes)
		defer debug.SetMemoryLimit(was)
	}
	dir, err := os.MkdirTemp("", "snapcache-bundle-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	a := &archive{ctx: ctx, file: file, opts: opts}
	if err := a.discover(); err != nil {
		return nil, err
	}
	if err := bolt.CheckFreeSpace(dir, 2*a.size); err != nil { // the records are compressed, too
		return nil, err
	}
	path := filepath.Join(dir, "cache.db")
	db, err := bolt.Open(path, bolt.Options{MaxBytes: maxBytes, ReplaceBudget: budgetBytes})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(a.load(db), db.Close()); err != nil {
		return nil, err
	}
	readOnly, err := bolt.Open(path, bolt.Options{ReadOnly: true, MaxBytes: maxBytes})
	if err != nil {
		return nil, err
	}
	return readOnly, nil
}
