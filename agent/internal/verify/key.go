package verify

import (
	"context"
	"errors"
	"time"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// maxTries is how many times a key that keeps changing is compared, or replaced.
	maxTries = 10

	// patience is how long the watch may take to reach the server's answer. If nothing changes, a
	// bookmark reaches it, about once a minute.
	patience = 3 * time.Minute

	// pollEvery is the longest time between two reads of the store.
	pollEvery = 200 * time.Millisecond
)

// at is the stored state of a key, with the collection's resourceVersion at that time.
type at struct {
	store.Header
	exists, corrupt bool
	rv              string
}

// drift returns how a key differs, empty if it does not, or if that can't be decided.
//
// A page of the server's list and the stored objects are never of the same moment. So drift asks
// the server for the single key, waits until the watch has passed the answer, and compares. A
// stored object that differs may be newer than the answer, so drift asks again. If the second
// answer is the same as the first, the object did not change in between. The watch has passed that
// state, so the stored object is wrong.
func (v *comparison) drift(ctx context.Context, key string) (collection.DriftKind, error) {
	answer, err := v.ask(ctx, key)
	for range maxTries {
		if err != nil {
			return "", err
		}
		have, err := v.await(ctx, key, answer)
		if err != nil {
			return "", err
		}
		switch {
		case have.corrupt, have.same(answer):
			return "", nil
		case !have.reached(answer):
			v.result.Undecided++
			return "", nil
		}
		again, err := v.ask(ctx, key)
		if err != nil {
			return "", err
		}
		newer, comparable := object.CompareRV(have.RV, answer.At)
		switch {
		case again.Exists != answer.Exists, again.UID != answer.UID, again.RV != answer.RV:
		case !answer.Exists && (!comparable || newer > 0):
			// The object was created after the first answer, and is deleted again.
		case !answer.Exists:
			return collection.DriftExtra, nil
		case !have.exists:
			return collection.DriftMissing, nil
		default:
			return collection.DriftStale, nil
		}
		answer = again
	}
	v.result.Undecided++
	return "", nil
}

func (v *comparison) ask(ctx context.Context, key string) (upstream.Current, error) {
	if err := v.pace.requests.Wait(ctx); err != nil {
		return upstream.Current{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, collection.RequestTimeout)
	defer cancel()
	return v.source.Current(ctx, key, "")
}

// await waits until the stored object is the server's answer, or the watch has passed the answer,
// or patience has elapsed.
func (v *comparison) await(ctx context.Context, key string, answer upstream.Current) (at, error) {
	until := v.clock.Now().Add(patience)
	for {
		changed := v.Tracker.NextChange()
		have, err := v.have(key)
		if err != nil || have.corrupt || have.same(answer) || have.reached(answer) || v.clock.Now().After(until) {
			return have, err
		}
		if err := sleep.UnlessWoken(ctx, v.clock, pollEvery, changed); err != nil {
			return at{}, err
		}
		v.report()
	}
}

// have returns the stored state of a key. It fails if the collection can't be compared, because it
// is not caught up or has become another cluster's.
func (v *comparison) have(key string) (at, error) {
	view, err := v.stored.View()
	if err != nil {
		return at{}, err
	}
	defer view.Close()
	if !v.Watching() || view.State().Cluster != v.cluster {
		return at{}, errNotCaughtUp
	}
	have := at{rv: view.State().RV}
	have.Header, err = view.Header(key)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case errors.As(err, new(*store.CorruptionError)):
		have.corrupt = true
	case err != nil:
		return have, err
	default:
		have.exists = true
	}
	return have, nil
}

// same reports whether the stored state is the server's answer.
func (a at) same(answer upstream.Current) bool {
	return a.exists == answer.Exists && (!a.exists || a.UID == answer.UID && a.RV == answer.RV)
}

// reached reports whether the watch has brought everything up to the server's answer.
func (a at) reached(answer upstream.Current) bool {
	cmp, comparable := object.CompareRV(a.rv, answer.At)
	return comparable && cmp >= 0
}

// heal replaces the stored object of a key by the server's. The change goes through the queue like
// any other, so that handlers and watchers see it. heal returns false if the collection changed
// during each try: the answer may then be older than an event of the key, and is dropped.
func (v *comparison) heal(ctx context.Context, key string) (bool, error) {
	_, _, queue, _ := v.Live()
	for range maxTries {
		before, err := v.have(key)
		if err != nil {
			return false, err
		}
		o, answer, err := v.fetch(ctx, key)
		if err != nil {
			return false, err
		}
		if before.same(answer) {
			return true, nil
		}
		switch err := queue.Correct(key, o, before.rv); {
		case errors.Is(err, deltafifo.ErrChanged):
			continue
		case err != nil:
			return false, err
		}
		stored, err := v.awaitStored(ctx, key, answer, before.rv)
		if err != nil || stored {
			return stored, err
		}
	}
	return false, nil
}

// fetch returns the server's object at a key, nil for none, and its version.
func (v *comparison) fetch(ctx context.Context, key string) (*object.Object, upstream.Current, error) {
	if err := v.pace.requests.Wait(ctx); err != nil {
		return nil, upstream.Current{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, collection.RequestTimeout)
	defer cancel()
	o, err := v.source.Get(ctx, key)
	switch {
	case errors.Is(err, upstream.ErrNoObject):
		return nil, upstream.Current{}, nil
	case err != nil:
		return nil, upstream.Current{}, err
	}
	return o, upstream.Current{Exists: true, UID: string(o.GetUID()), RV: o.GetResourceVersion()}, nil
}

// awaitStored waits until the answer is stored, or the checkpoint is no longer rv.
func (v *comparison) awaitStored(ctx context.Context, key string, answer upstream.Current, rv string) (bool, error) {
	for {
		changed := v.Tracker.NextChange()
		have, err := v.have(key)
		if err != nil || have.same(answer) || have.rv != rv {
			return have.same(answer), err
		}
		if err := sleep.UnlessWoken(ctx, v.clock, pollEvery, changed); err != nil {
			return false, err
		}
	}
}
