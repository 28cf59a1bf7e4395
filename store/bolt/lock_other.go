//go:build !unix

package bolt

import (
	"errors"

	"github.com/snapcache/snapcache/store"
)

// Lock takes the lock of the database at path, which here means to see that nobody
// else has it.
func Lock(path string) (unlock func() error, err error) {
	db, err := openBolt(path, Options{})
	if err != nil && !errors.Is(err, store.ErrForeign) {
		return nil, err
	}
	if db != nil {
		err = db.Close()
	}
	return func() error { return nil }, err
}
