package informer

import (
	"context"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// Resyncs runs resyncs until ctx ends.
func (p *Processor) Resyncs(ctx context.Context) { p.resyncs(ctx) }

// Seats returns how many collections of db have a seat.
func Seats(db store.DB) (n int) {
	seats.mu.Lock()
	defer seats.mu.Unlock()
	for at := range seats.m {
		if at.db == db {
			n++
		}
	}
	return n
}

// Join returns an option that applies opts.
func Join(opts ...Option) Option {
	return func(o *options) {
		for _, opt := range opts {
			opt(o)
		}
	}
}

// Mirror is the collection of an indexer with [All].
type Mirror = mirror

// OpenMirror opens a mirror of objects as they are.
func OpenMirror(db store.DB, was *Mirror, info store.Info, indexes ...store.Index) (store.Collection, error) {
	return openMirror(db, was, info, indexes, func(o *object.Object) *object.Object { return o })
}

// MirrorMemory returns the store in memory of a mirror.
func MirrorMemory(m *Mirror) *memory.DB { return m.db }
