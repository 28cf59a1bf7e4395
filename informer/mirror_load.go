package informer

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// loaded is what one goroutine has read of a collection.
type loaded struct {
	changes []store.Change
	corrupt map[string]error
	err     error // a read error other than of single records
}

// read reads and decodes all objects of the durable collection, in parallel. corrupt has the errors
// of the records that can't be read.
func (m *mirror) read() (changes []store.Change, corrupt map[string]error, err error) {
	records := make(chan []store.Record) // chunks, since one record is less work than its passing on
	parts := make([]loaded, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() {
			for chunk := range records {
				for _, r := range chunk {
					parts[i].add(r, m.decode)
				}
			}
		})
	}
	corrupt, err = m.scan(func(chunk []store.Record) { records <- chunk })
	close(records)
	wg.Wait()
	for _, p := range parts {
		changes = append(changes, p.changes...)
		for key, damage := range p.corrupt {
			corrupt[key] = damage
		}
		err = errors.Join(err, p.err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("load collection %s: %w", m.info.ID, err)
	}
	for i := range changes {
		// Keys side by side are in the processor's cache when they are compared in a lookup; beside
		// the objects they would not be.
		changes[i].Key = strings.Clone(changes[i].Key)
	}
	return changes, corrupt, nil
}

// scan passes on all readable records of the durable collection, in chunks, and returns the errors
// of the others. If a view expires, scan continues in another one: there is no writer meanwhile.
func (m *mirror) scan(next func([]store.Record)) (corrupt map[string]error, err error) {
	corrupt = map[string]error{}
	for last := ""; ; {
		began := last
		if last, err = m.scanView(last, next, corrupt); err == nil {
			return corrupt, nil
		}
		if !errors.Is(err, store.ErrViewExpired) || last == began {
			return corrupt, err
		}
	}
}

// scanView is scan in one view, for the records after the key after. It returns the last key that it
// has read.
func (m *mirror) scanView(after string, next func([]store.Record), corrupt map[string]error) (last string, err error) {
	v, err := m.durable.View()
	if err != nil {
		return after, err
	}
	defer v.Close()
	var chunk []store.Record
	defer func() {
		if len(chunk) > 0 {
			next(chunk)
		}
	}()
	last = after
	for r, err := range v.Records("", after) {
		if key := corruptKey(err); key != "" {
			corrupt[key], last = err, key
			continue
		}
		if err != nil {
			return last, err
		}
		last = r.Key
		if chunk = append(chunk, r); len(chunk) == chunkObjects {
			next(chunk)
			chunk = nil
		}
	}
	return last, nil
}

// add decodes one record.
func (l *loaded) add(r store.Record, decode func(*object.Object) *object.Object) {
	o, err := parsed(r)
	switch key := corruptKey(err); {
	case err == nil:
		l.changes = append(l.changes, store.Change{Key: r.Key, Object: decode(o)})
	case key != "":
		if l.corrupt == nil {
			l.corrupt = map[string]error{}
		}
		l.corrupt[key] = err
	default:
		l.err = err
	}
}

// parsed returns the object of a record.
func parsed(r store.Record) (*object.Object, error) {
	if r.Object != nil {
		return r.Object, nil
	}
	raw, err := r.Raw(nil)
	if err != nil {
		return nil, err
	}
	o, err := object.FromValid(raw)
	if err != nil {
		return nil, &store.CorruptionError{Key: r.Key, Reason: err.Error()}
	}
	return o, nil
}

// corruptKey returns the key of the corrupt record that an error is about, empty if it is about
// anything else.
func corruptKey(err error) string {
	var damage *store.CorruptionError
	if errors.As(err, &damage) {
		return damage.Key
	}
	return ""
}
