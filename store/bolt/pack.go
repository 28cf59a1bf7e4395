package bolt

import "github.com/snapcache/snapcache/store/bolt/internal/format"

// pack compresses a record of the collection, see writeback.Cell.
func (c *collection) pack(key, b []byte) ([]byte, error) {
	r, err := format.ParseRecord(b)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	id, dict := c.dictID, c.dict
	c.mu.Unlock()
	size := len(r.Payload)
	if err := c.db.codecs.Compress(&r, id, dict); err != nil {
		return nil, err
	}
	c.training.encoded(size, len(r.Payload))
	return r.Encode(key), nil
}
