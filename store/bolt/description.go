package bolt

import (
	"bytes"
	"fmt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// Describe puts the description into the memtable, unless the stored one has the same bytes.
func (c *collection) Describe(d store.Description) error {
	if err := c.describe(d); err != nil {
		return fmt.Errorf("collection %s: describe: %w", c.id, err)
	}
	return nil
}

func (c *collection) describe(d store.Description) error {
	b, err := format.EncodeJSON(c.id, format.KeyDescription, d)
	if err != nil {
		return err
	}
	db := c.db.lock()
	defer db.unlock()
	v, err := db.baseView(c.id)
	if err != nil {
		return err
	}
	same := false
	err = v.read(func() error { same = bytes.Equal(v.rawDescription(), b); return nil })
	v.Close()
	if err != nil || same {
		return err
	}
	if err := db.log.Reserve(); err != nil {
		return err
	}
	addr := format.Address(format.CollectionPath(c.id), format.KeyDescription)
	db.log.Put(map[string]writeback.Cell{addr: {Value: b}}, true)
	return nil
}

// rawDescription returns the stored bytes of the description, nil if there are none.
func (v *view) rawDescription() []byte {
	return v.lookup(format.CollectionPath(v.id), format.KeyDescription)
}

// Description returns the description of the collection. A corrupt one counts as none, because it
// can be fetched again.
func (v *view) Description() (d store.Description, err error) {
	err = v.read(func() error {
		if format.DecodeJSON(v.id, format.KeyDescription, v.rawDescription(), &d) != nil {
			d = store.Description{}
		}
		return nil
	})
	return d, err
}
