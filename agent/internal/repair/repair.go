// Package repair fetches stored records that failed their checksum from the server again.
package repair

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// every is the time between two passes over the corrupt records, and patience the time between
	// two requests for the same key.
	every    = 2 * time.Second
	patience = time.Minute

	requestsPerSecond = 5
)

// Repairer fetches corrupt records again.
type Repairer struct {
	Damages *Damages
	Clock   clock.WithTicker
	All     func() []*collection.Collection
}

// Run repairs until ctx ends.
func (r Repairer) Run(ctx context.Context) {
	limit := rate.NewLimiter(requestsPerSecond, 1)
	ticker := r.Clock.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Damages.noticed:
		case <-ticker.C():
		}
		for _, c := range r.All() {
			r.repair(ctx, c, limit)
		}
	}
}

// repair requests the corrupt records of one collection, and logs each that can be read again.
func (r Repairer) repair(ctx context.Context, c *collection.Collection, limit *rate.Limiter) {
	keys := r.Damages.keys(c.ID)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		x := keys[key]
		if !x.logged {
			x.logged = true
			r.Damages.set(c.ID, key, &x)
			c.Log.Error("a stored record is corrupt; it is not served and will be fetched again", "key", key)
		}
		readable, err := c.Readable(key)
		if err != nil {
			continue // the store reports it itself
		}
		if readable {
			r.Damages.set(c.ID, key, nil)
			c.Log.Info("a corrupt record was repaired", "key", key)
			continue
		}
		// Until the guards of the watch have passed, the server may be another cluster, or one that
		// was restored from a backup.
		if !c.Watching() || r.Clock.Since(x.asked) < patience || limit.Wait(ctx) != nil {
			continue
		}
		live := c.Live()
		x.gone, err = fetch(ctx, live.Source, live.Queue, c.Log, key, x.gone, live.Stored.State().RV)
		if errors.Is(err, deltafifo.ErrChanged) { // the next pass tries again
			x.asked, err = time.Time{}, nil
		} else {
			x.asked = r.Clock.Now()
		}
		r.Damages.set(c.ID, key, &x)
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("could not fetch a corrupt record again; retrying", "key", key, "error", upstream.Explain(err))
		}
	}
}

// fetch asks the server for one object and queues the answer for the loop, the only writer. at is the
// checkpoint before the request. If the watch has brought anything since, fetch returns
// [deltafifo.ErrChanged]: that may be newer than the answer.
//
// If the server has no such object, the watch is about to send the deletion, with its
// resourceVersion, which removes the record in good order. If that has not arrived by the next
// request, which wasGone reports, the server never had an object of that name: the key itself is
// corrupt, and the record is removed without an event. If an object of that name is created
// meanwhile, the watch brings it, before or after, as above.
func fetch(ctx context.Context, source *upstream.Source, queue *deltafifo.Queue, log *slog.Logger, key string, wasGone bool, at string) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, collection.RequestTimeout)
	defer cancel()
	o, err := source.Get(ctx, key)
	gone = errors.Is(err, upstream.ErrNoObject)
	switch {
	case gone && !wasGone:
		return true, nil
	case err != nil && !gone:
		return false, err
	}
	err = queue.Correct(key, o, at)
	if gone && err == nil {
		log.Error("removed a corrupt record of an object that the server does not have; the file may be corrupt elsewhere: run snapcache check", "key", key)
	}
	return gone, err
}
