package informer

import (
	"context"

	"github.com/snapcache/snapcache/store"
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
