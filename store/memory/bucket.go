package memory

import (
	"sync"

	"github.com/snapcache/snapcache/store"
)

// indexTree is an index with the keys under each value, in order.
type indexTree struct {
	store.Index
	values pages[*bucket]

	// newest has the buckets of the newest state by value, and is what a change is made in.
	// Those that are not in values yet wait in moved. A snapshot has neither.
	newest map[string]*bucket
	moved  []edit[*bucket]
}

// mostMoved is how many buckets of an index wait at most.
const mostMoved = 1024

func newIndexTree(x store.Index) indexTree {
	return indexTree{Index: x, newest: map[string]*bucket{}}
}

// move puts what is filed under a value, or takes out what is there.
func (x *indexTree) move(value string, f *filed, out bool, o *owner) {
	b := x.newest[value]
	has := b != nil && b.owner == o
	switch {
	case b == nil:
		b = &bucket{owner: o}
	case b.owner != o:
		b = &bucket{owner: o, count: b.count, keys: *b.settled()}
	}
	if b.move(f, out); b.waits || has && b.count > 0 {
		return
	}
	x.newest[value], b.waits = b, true
	if x.moved = append(x.moved, edit[*bucket]{key: value, value: b}); len(x.moved) == mostMoved {
		x.settle(o)
	}
}

// settle gives the buckets that wait their places, and drops those that are empty.
func (x *indexTree) settle(o *owner) {
	for i := range x.moved {
		e := &x.moved[i]
		if e.value.waits = false; e.value.count == 0 {
			e.gone = true
			delete(x.newest, e.key)
		}
	}
	x.values.merge(x.moved, o)
	clear(x.moved)
	x.moved = x.moved[:0]
}

// bucket is the keys under one value. Those that come and go wait
// until somebody looks: who never asks for a value does not pay for its order.
type bucket struct {
	owner   *owner // who may change it
	waits   bool   // in moved
	count   int
	keys    pages[*filed]
	waiting []edit[*filed]
	once    sync.Once // for settled
}

// mostWaiting is how many keys wait in a small bucket at most; in others it is as many as
// have their places, which makes the work of a key that waits the same for any number.
const mostWaiting = 256

// move adds a key that is not there or takes out one that is.
func (b *bucket) move(f *filed, out bool) {
	if b.count++; out {
		b.count -= 2
	}
	e := edit[*filed]{key: f.key, value: f, gone: out}
	if last := len(b.waiting) - 1; last >= 0 && b.waiting[last].key == f.key {
		b.waiting[last] = e // it came and went, or went and is back
		return
	}
	b.waiting = append(b.waiting, e)
	if len(b.waiting) >= max(mostWaiting, b.keys.count) {
		b.settle()
	}
}

func (b *bucket) settle() {
	b.keys.merge(b.waiting, b.owner)
	b.waiting = b.waiting[:0]
}

// settled returns the keys of a bucket that nobody changes any more. The first who asks
// settles it, the others wait for him.
func (b *bucket) settled() *pages[*filed] {
	b.once.Do(func() {
		b.settle()
		b.waiting = nil
	})
	return &b.keys
}
