package boltfile

import (
	"errors"
	"io/fs"
	"os"

	bbolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/snapcache/snapcache/store"
)

// File is an open bbolt file. All access goes through its transactions, which encrypt and decrypt
// if the file is encrypted, and through Read, which survives pages that can't be read.
type File struct {
	bolt   *bbolt.DB
	path   string      // for errors
	raw    *os.File    // the descriptor that bbolt uses
	cipher *fileCipher // nil for a file in clear
	faults *Faults

	// successor is a read transaction on the file that replaced this one and has the same pages, see
	// MakeWritable; nil for none. It ends with this file.
	successor *bbolt.Tx

	readers int // guarded by Handle.mu, as are the fields below
	retired bool
}

// View runs fn in a read transaction.
func (f *File) View(fn func(*Tx) error) error {
	return f.Read(func() error {
		return orClosed(f.bolt.View(func(tx *bbolt.Tx) error { return fn(f.tx(tx)) }))
	})
}

// Update runs fn in a write transaction. It does not stamp the transaction, see Stamp.
func (f *File) Update(fn func(*Tx) error) error {
	return f.Read(func() error {
		return orClosed(f.bolt.Update(func(tx *bbolt.Tx) error { return fn(f.tx(tx)) }))
	})
}

func orClosed(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}

// Close closes the file. It waits for the transactions that are open.
func (f *File) Close() error {
	err := f.bolt.Close()
	if f.successor != nil {
		err = errors.Join(err, f.successor.Rollback())
	}
	return err
}

// Sync makes all writes durable.
func (f *File) Sync() error { return f.bolt.Sync() }

// Named reports whether path is a name of the file.
func (f *File) Named(path string) bool { return names(path, f.raw) }

// Stat returns the identity and the size of the file, whatever name it has.
func (f *File) Stat() (fs.FileInfo, error) { return f.raw.Stat() }

// OpenReads returns the number of read transactions that are open.
func (f *File) OpenReads() int { return f.bolt.Stats().OpenTxN }

func (f *File) tx(tx *bbolt.Tx) *Tx { return &Tx{raw: tx, file: f} }
