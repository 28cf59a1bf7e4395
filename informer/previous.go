package informer

import (
	"errors"
	"slices"

	"github.com/snapcache/snapcache/internal/spool"
	"github.com/snapcache/snapcache/store"
)

// previousAtOnce is how many objects are read in one view, which expires. The records of each view have a file
// of their own.
const previousAtOnce = 10_000

// setPrevious sets the states of objects before the changes of a list, which the store is about to make. Until
// handlers get them, at their own pace, they are in files: a list may change all objects.
func (p *Processor) setPrevious(changes []*change) error {
	decode := p.opts.Decoding(false)
	if m := memoryOf(p.opts.Collection); m != nil {
		for _, ch := range changes {
			if o, err := m.Get(ch.Key); err == nil {
				ch.old = &value{object: o, decode: decode}
			}
		}
		return nil
	}
	for part := range slices.Chunk(changes, previousAtOnce) {
		if err := p.spool(part, decode); err != nil {
			return err
		}
	}
	return nil
}

// spool sets the states before some changes, from one view.
func (p *Processor) spool(changes []*change, decode Decode) error {
	v, err := p.opts.Collection.View()
	if err != nil {
		return err
	}
	defer v.Close()
	records := spool.NewRecords(p.opts.SpoolDir)
	var decodeStored func(key string, stored, buf []byte) ([]byte, error) // one for all records of the view
	for _, ch := range changes {
		if ch.Type == store.Added {
			continue
		}
		rec, err := recordOf(v, ch.Key)
		switch {
		case errors.As(err, new(*store.CorruptionError)), errors.Is(err, store.ErrNotFound):
			continue // the handler gets the new state as an addition
		case err != nil:
			return err
		}
		ch.old = &value{decode: decode}
		if records != nil && rec.Object == nil {
			if decodeStored == nil {
				decodeStored = rec.Decode
			}
			rec.Decode = decodeStored
			if ch.old.spooled, err = records.Add(rec); err == nil {
				continue
			}
			records = nil // no disk has space for it: the other objects stay in memory
		}
		if ch.old.object, err = rec.Decoded(); err != nil {
			ch.old = nil
		}
	}
	return nil
}

// recordOf returns the record at a key: of all keys with a prefix, the prefix itself is first.
func recordOf(v store.View, key string) (store.Record, error) {
	for rec, err := range v.Records(key, "") {
		if rec.Key == key {
			return rec, err
		}
		break
	}
	return store.Record{}, store.ErrNotFound
}
