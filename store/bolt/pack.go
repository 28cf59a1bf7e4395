package bolt

import (
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// pack compresses a record of the collection, see writeback.Cell.
func (c *collection) pack(key, b []byte) ([]byte, error) {
	r, err := format.ParseRecord(b)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	id, dict := c.dictID, c.dict
	c.mu.Unlock()
	raw := r.Payload
	if err := c.db.codecs.Compress(&r, id, dict); err != nil {
		return nil, err
	}
	c.training.encoded(len(raw), len(r.Payload), func() *object.Object {
		o, err := object.FromValid(append([]byte(nil), raw...))
		if err != nil {
			return nil // no sample then
		}
		return o
	})
	return r.Encode(key), nil
}
