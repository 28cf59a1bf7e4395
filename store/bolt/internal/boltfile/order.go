package boltfile

import (
	"bytes"
	"slices"
	"sort"
	"strings"
	"sync"
)

// orders has the decrypted names of buckets in their order. Sealed names are in no order
// that means anything, and a collection is read in the order of the names: so those of a
// bucket are decrypted and sorted once and kept until the bucket changes. That is what
// encryption costs in memory: the names of what is read in order.
type orders struct {
	mu sync.Mutex
	m  map[string]order // by the prefix of the bucket's addresses
}

// order has the names of one bucket.
type order struct {
	// root is the page that the bucket began with: as long as it does, it has not
	// changed. It may begin with the same page again, but only after a write to it, which
	// forgets this first; and a page that a reader still has is not used again.
	root uint64
	keys []string
}

func (o *orders) get(prefix string, root uint64) ([]string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.m[prefix]
	return known.keys, ok && known.root == root
}

func (o *orders) set(prefix string, is order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.m == nil {
		o.m = map[string]order{}
	}
	o.m[prefix] = is
}

// forget drops the names of a bucket and of those in it.
func (o *orders) forget(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for prefix := range o.m {
		if rest, ok := strings.CutPrefix(prefix, path); ok && (rest[0] == 0 || rest[0] == 1) {
			delete(o.m, prefix)
		}
	}
}

// change records that the transaction changes a bucket with sealed names.
func (b *Bucket) change() {
	if b.sealing < sealAll || b.tx.changed[b.prefix] {
		return
	}
	if b.tx.changed == nil {
		b.tx.changed = map[string]bool{}
	}
	b.tx.changed[b.prefix] = true
	b.tx.file.orders.forget(strings.TrimSuffix(b.prefix, "\x00"))
}

// forget drops the names of a bucket in this one.
func (b *Bucket) forget(name []byte) {
	if b.tx.file.cipher != nil {
		b.tx.file.orders.forget(strings.TrimSuffix(b.prefix, "\x00") + "\x01" + string(name))
	}
}

// keys returns the names in a bucket with sealed names, in order. The caller must not
// change the slice.
func (b *Bucket) keys() []string {
	root := uint64(b.raw.Root())
	// A small bucket has no page of its own, and one that this transaction has changed
	// not yet.
	kept := root != 0 && !b.tx.changed[b.prefix]
	if kept {
		if keys, ok := b.tx.file.orders.get(b.prefix, root); ok {
			return keys
		}
	}
	keys := []string{}
	var last []byte
	cur := b.raw.Cursor()
	for k, _ := cur.First(); k != nil; k, _ = cur.Next() {
		if last != nil && bytes.Compare(k, last) <= 0 {
			panic(ErrOrder) // as bbolt does with a corrupt file: the cursor would go on for ever
		}
		last = k
		name, _ := b.tx.file.cipher.openName(k, b.prefix)
		keys = append(keys, string(name))
	}
	slices.Sort(keys)
	if kept {
		b.tx.file.orders.set(b.prefix, order{root: root, keys: keys})
	}
	return keys
}

func (c *Cursor) seekSealed(key string) (k, value []byte) {
	if c.keys == nil {
		c.keys = c.bucket.keys()
	}
	c.at = sort.SearchStrings(c.keys, key)
	return c.current()
}

// current returns the entry that the cursor is at, in a bucket with sealed names.
func (c *Cursor) current() (key, value []byte) {
	if c.at >= len(c.keys) {
		return nil, nil
	}
	key = []byte(c.keys[c.at])
	if c.bucket.sealing == sealNames {
		return key, unopened // an entry that has no value
	}
	return key, c.bucket.Get(key)
}
