package informer

import (
	"sync"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// opened is an open collection whose writers wait for each other: the informer, callers of the indexer's
// methods, and openings with other indexes.
type opened struct {
	store.Collection
	memory  *memory.Collection // the collection, if its objects are in memory
	writing sync.Mutex         // held by each write, and from Replace to the end of the replacement
}

// memoryOf returns the collection that holds all objects of c in memory, nil if there is none.
func memoryOf(c Readable) *memory.Collection {
	switch c := c.(type) {
	case *handle:
		return c.inMemory()
	case *memory.Collection:
		return c
	case *mirror:
		return c.Collection
	}
	return nil
}

func (c *opened) Apply(b store.Batch) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.Collection.Apply(b)
}

func (c *opened) Reopen(info store.Info, indexes ...store.Index) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.Collection.Reopen(info, indexes...)
}

func (c *opened) Close() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.Collection.Close()
}

func (c *opened) Replace() (store.Replacement, error) {
	c.writing.Lock()
	r, err := c.Collection.Replace()
	if err != nil {
		c.writing.Unlock()
		return nil, err
	}
	return &replacing{Replacement: r, end: sync.OnceFunc(c.writing.Unlock)}, nil
}

// replacing is a replacement that holds up other writers until it ends.
type replacing struct {
	store.Replacement
	end func()
}

func (r *replacing) Commit(cp store.Checkpoint) error {
	err := r.Replacement.Commit(cp)
	if err == nil {
		r.end()
	}
	return err
}

func (r *replacing) Abort() error {
	defer r.end()
	return r.Replacement.Abort()
}
