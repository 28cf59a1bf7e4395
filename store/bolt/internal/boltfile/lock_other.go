//go:build !unix

package boltfile

import (
	"errors"
	"os"

	"github.com/snapcache/snapcache/store"
)

// share and unshare have no lock to take.
func share(*os.File) error   { return nil }
func unshare(*os.File) error { return nil }

// Lock checks that no other process has the database at path open. This platform has no lock to
// hold.
func Lock(path string) (unlock func() error, err error) {
	db, err := Open(path, Options{})
	if err != nil && !errors.Is(err, store.ErrForeign) {
		return nil, err
	}
	if db != nil {
		err = db.Close()
	}
	return func() error { return nil }, err
}
