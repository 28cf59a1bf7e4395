package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// maxDamaged bounds how many damaged records of a collection are remembered. Those
	// past it are noticed again when they are read again.
	maxDamaged = 1000

	// repairEvery is how often damaged records are looked at, and repairPatience how
	// long a key is left alone after it was asked for.
	repairEvery    = 2 * time.Second
	repairPatience = time.Minute

	repairsPerSecond = 5

	// damageLines is how many damaged records are logged a minute.
	damageLines = 10
)

// damages are the damaged records that the store told of and that nobody could read
// since. It is safe for concurrent use.
type damages struct {
	noticed chan struct{} // has one while there is one that was not looked at

	mu   sync.Mutex
	byID map[string]*damage
}

// damage is what is known of one collection.
type damage struct {
	keys  map[string]asked
	found int64 // in all
}

// asked is what became of asking the server for a key.
type asked struct {
	at   time.Time // zero for not yet
	gone bool      // the server had nothing
}

func newDamages() *damages {
	return &damages{noticed: make(chan struct{}, 1), byID: map[string]*damage{}}
}

// note takes a record that the store found damaged. It is called from within reads,
// so the rest is left to the repairs.
func (d *damages) note(collection, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.byID[collection]
	if x == nil {
		x = &damage{keys: map[string]asked{}}
		d.byID[collection] = x
	}
	if _, known := x.keys[key]; known || len(x.keys) >= maxDamaged {
		return
	}
	x.keys[key] = asked{}
	x.found++
	select {
	case d.noticed <- struct{}{}:
	default:
	}
}

// of returns a collection's damaged records, with what became of asking for them, and
// how many there have been.
func (d *damages) of(collection string) (keys map[string]asked, found int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.byID[collection]
	if x == nil {
		return nil, 0
	}
	return maps.Clone(x.keys), x.found
}

func (d *damages) ask(collection, key string, a asked) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.byID[collection]; x != nil {
		x.keys[key] = a
	}
}

func (d *damages) mended(collection, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.byID[collection]; x != nil {
		delete(x.keys, key)
	}
}

// forget is for a collection that is no more.
func (d *damages) forget(collection string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byID, collection)
}

// repair fetches damaged records again until ctx ends.
func (a *Agent) repair(ctx context.Context) {
	r := repairs{Agent: a, limit: rate.NewLimiter(repairsPerSecond, 1), lines: rate.NewLimiter(rate.Every(time.Minute/damageLines), damageLines), told: map[string]bool{}}
	ticker := a.clock.NewTicker(repairEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.damages.noticed:
		case <-ticker.C():
		}
		for _, c := range a.all() {
			r.collection(ctx, c)
		}
	}
}

// repairs is the state of [Agent.repair].
type repairs struct {
	*Agent
	limit *rate.Limiter   // of requests
	lines *rate.Limiter   // of the log
	told  map[string]bool // collection and key of what was logged
}

// collection looks at the damaged records of one collection.
func (r *repairs) collection(ctx context.Context, c *collection.Collection) {
	keys, _ := r.damages.of(c.ID)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		name := c.ID + " " + key
		if !r.told[name] {
			r.told[name] = true
			if r.lines.Allow() {
				c.Log.Error("a stored record is damaged; it is not served and will be fetched again", "key", key)
			}
		}
		readable, err := c.Readable(key)
		if err != nil {
			continue // the store says so itself
		}
		if readable {
			r.damages.mended(c.ID, key)
			delete(r.told, name)
			c.Log.Info("a damaged record was repaired", "key", key)
			continue
		}
		// Before the guards of the watch have passed the server may be another cluster,
		// or one that went back in time.
		if !c.Watching() || r.clock.Since(keys[key].at) < repairPatience || r.limit.Wait(ctx) != nil {
			continue
		}
		_, source, queue, _ := c.Live()
		gone, err := fetch(ctx, source, queue, c.Log, key, keys[key].gone)
		r.damages.ask(c.ID, key, asked{r.clock.Now(), gone})
		if err != nil && ctx.Err() == nil && r.lines.Allow() {
			c.Log.Warn("a damaged record could not be fetched again yet", "key", key, "error", upstream.Described(err))
		}
	}
}

// fetch asks the server for one object and hands the answer to the loop, which is
// the only one that writes.
//
// The answer is the newest state there was when it was given: past the checkpoint,
// perhaps, and past what the watch has sent. What the watch has still to send of this
// object is older, and dropped as stale, or newer. An answer that is late, because the
// watch was faster, finds a record that is not damaged any more and is dropped itself.
// The checkpoint stays where it is in any case.
//
// Where the server has nothing, the watch is about to say that the object was
// deleted, and when: that takes the record away as it should be. Where that has not
// come by the next time, because wasGone, the server never had an object of that name,
// so it is the key that is damaged, and the record goes without a word. Should the name
// be taken meanwhile, the watch brings the new object before or after: see above.
func fetch(ctx context.Context, source *upstream.Source, queue *deltafifo.Queue, log *slog.Logger, key string, wasGone bool) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, collection.RequestTimeout)
	defer cancel()
	o, err := source.Get(ctx, key)
	gone = errors.Is(err, upstream.ErrNoObject)
	switch {
	case gone && !wasGone:
		return true, nil
	case gone:
		log.Error("a damaged record is of no object that the server knows: it is removed, and the file is damaged in more than that: have a look with snapcache check", "key", key)
	case err != nil:
		return false, err
	}
	if err = queue.Repair(key, o); errors.Is(err, deltafifo.ErrReplacing) {
		err = nil // the list brings it
	}
	return gone, err
}
