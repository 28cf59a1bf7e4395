package reflector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/snapcache/snapcache/store"
)

const (
	// schemaEvery is how often the schema is compared while a watch is up, with up to
	// half as much again at random. The server ends most watches of a resource whose
	// definition changes, so that the guards find out before.
	schemaEvery   = 10 * time.Minute
	schemaTimeout = 30 * time.Second
)

// schemaChanged compares the form that objects are served in with the one that they
// are stored in. nil says that it is the same, or not known now.
func (r *Reflector) schemaChanged(ctx context.Context) error {
	now, err := r.opts.Schema(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("compare the schema: %w", err)
	case now == "" || now == r.schema:
		return nil
	case r.schema == "":
		return &RelistError{Reason: store.ReasonSchemaChanged, Err: fmt.Errorf("the schema is %s, and what is stored is of one that was not known", now)}
	}
	return &RelistError{Reason: store.ReasonSchemaChanged, Err: fmt.Errorf("the schema is %s, and was %s", now, r.schema)}
}

// recheckSchema is schemaChanged beside a watch, which goes on where it can't be told.
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

// awaitRecheck sets the time of the next comparison.
func (r *Reflector) awaitRecheck() {
	r.recheck.Reset(schemaEvery + rand.N(schemaEvery/2)) //nolint:gosec // spreads load, guards nothing
}
