package informer

import (
	"context"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Resyncs runs resyncs until ctx ends.
func (p *Processor) Resyncs(ctx context.Context) { p.resyncs(ctx) }

// DecodedWithin is the number of decoded objects that are kept under a memory limit.
var DecodedWithin = decodedWithin

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
func OpenMirror(db store.DB, info store.Info, indexes ...store.Index) (store.Collection, error) {
	return openMirror(db, info, indexes, func(o *object.Object) *object.Object { return o })
}

// MirrorDurable returns the durable collection of a mirror.
func MirrorDurable(m *Mirror) store.Collection { return m.durable }

// Own opens the collection, as the indexer's informer does when it runs.
func (x *Indexer) Own() error {
	_, err := x.coll.own()
	return err
}
