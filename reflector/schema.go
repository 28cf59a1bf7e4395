package reflector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/snapcache/snapcache/store"
)

const (
	// schemaEvery is the time between two comparisons of the schema while a watch is open, plus
	// up to half as much at random. The server ends most watches of a resource whose definition
	// changes, so the guards usually find the change earlier.
	schemaEvery   = 10 * time.Minute
	schemaTimeout = 30 * time.Second
)

// schemaChanged compares the server's schema with that of the stored objects. It returns nil if the
// two are equal, or if the server's is not known now.
func (r *Reflector) schemaChanged(ctx context.Context) error {
	now, err := r.opts.Schema(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("compare the schema: %w", err)
	case now == "" || now == r.schema:
		return nil
	case r.schema == "":
		return newRelistError(store.ReasonSchemaChanged, "the schema is %s, that of the stored objects is not known", now)
	}
	return newRelistError(store.ReasonSchemaChanged, "the schema is %s, and was %s", now, r.schema)
}

// recheckSchema is schemaChanged during a watch. If the schema can't be read, the watch continues.
func (r *Reflector) recheckSchema(ctx context.Context) error {
	r.awaitRecheck()
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	err := r.schemaChanged(ctx)
	if asRelist(err) == nil && err != nil {
		r.opts.Logger.Info("the schema can't be compared at the moment", "error", err)
		return nil
	}
	return err
}

func (r *Reflector) awaitRecheck() {
	r.recheck.Reset(schemaEvery + rand.N(schemaEvery/2)) //nolint:gosec // spreads load, guards nothing
}
