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

	mu      sync.Mutex
	records map[string]map[string]record // by collection and key
	found   map[string]int64             // records noted since the start of the agent, with the repaired ones
}

// record is the state of the repair of a corrupt record.
type record struct {
	logged bool
	asked  time.Time // of the newest request; zero before the first
	gone   bool      // the server had no such object
}

// NewDamages returns an empty set.
func NewDamages() *Damages {
	return &Damages{noticed: make(chan struct{}, 1), records: map[string]map[string]record{}, found: map[string]int64{}}
}

// Note adds a record that the store found corrupt. It is called from within reads, so the rest is left
// to the [Repairer].
func (d *Damages) Note(collection, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := d.records[collection]
	if _, known := keys[key]; known || len(keys) >= maxCorrupt {
		return
	}
	if keys == nil {
		keys = map[string]record{}
		d.records[collection] = keys
	}
	keys[key] = record{}
	d.found[collection]++
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
	return int64(len(d.records[collection])), d.found[collection]
}

// keys returns a collection's corrupt records.
func (d *Damages) keys(collection string) map[string]record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.records[collection])
}

// set replaces the state of a corrupt record; nil for a record that can be read again. It does nothing
// for a collection that was forgotten.
func (d *Damages) set(collection, key string, r *record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if keys := d.records[collection]; r == nil {
		delete(keys, key)
	} else if keys != nil {
		keys[key] = *r
	}
}

// Forget drops a collection that was removed.
func (d *Damages) Forget(collection string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.records, collection)
	delete(d.found, collection)
}
