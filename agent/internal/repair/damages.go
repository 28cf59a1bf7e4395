package repair

import (
	"maps"
	"sync"
	"time"
)

// maxCorrupt bounds how many corrupt records of a collection are remembered. Further ones are
// noticed when they are read again.
const maxCorrupt = 1000

// Damages are the corrupt records that the store has reported and that have not been readable since.
// It is safe for concurrent use.
type Damages struct {
	noticed chan struct{} // has a value if there is a new record

	mu   sync.Mutex
	byID map[string]*damage
}

// damage holds the corrupt records of one collection.
type damage struct {
	keys  map[string]asked
	found int64 // records noted since the start of the agent, with the repaired ones
}

// asked is the result of a request for a key.
type asked struct {
	at   time.Time // zero before the first request
	gone bool      // the server had no such object
}

// NewDamages returns an empty set.
func NewDamages() *Damages {
	return &Damages{noticed: make(chan struct{}, 1), byID: map[string]*damage{}}
}

// Note adds a record that the store found corrupt. It is called from within reads, so the rest is left
// to the [Repairer].
func (d *Damages) Note(collection, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.byID[collection]
	if x == nil {
		x = &damage{keys: map[string]asked{}}
		d.byID[collection] = x
	}
	if _, known := x.keys[key]; known || len(x.keys) >= maxCorrupt {
		return
	}
	x.keys[key] = asked{}
	x.found++
	select {
	case d.noticed <- struct{}{}:
	default:
	}
}

// Count returns how many records of a collection are corrupt, and how many were found since the
// start of the agent.
func (d *Damages) Count(collection string) (corrupt, found int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.byID[collection]
	if x == nil {
		return 0, 0
	}
	return int64(len(x.keys)), x.found
}

// keys returns a collection's corrupt records, with the results of the requests for them.
func (d *Damages) keys(collection string) map[string]asked {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.byID[collection]
	if x == nil {
		return nil
	}
	return maps.Clone(x.keys)
}

// setAsked notes the result of a request.
func (d *Damages) setAsked(collection, key string, a asked) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.byID[collection]; x != nil {
		x.keys[key] = a
	}
}

// repaired removes a record that can be read again.
func (d *Damages) repaired(collection, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.byID[collection]; x != nil {
		delete(x.keys, key)
	}
}

// Forget drops a collection that was removed.
func (d *Damages) Forget(collection string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byID, collection)
}
