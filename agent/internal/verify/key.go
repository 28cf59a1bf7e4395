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
	var answer upstream.Current
	var have at
	for try := range maxTries {
		again, err := request(ctx, v, func(ctx context.Context) (upstream.Current, error) { return v.source.Current(ctx, key, "") })
		if err != nil {
			return "", err
		}
		if try > 0 && again.Exists == answer.Exists && again.UID == answer.UID && again.RV == answer.RV {
			newer, comparable := object.CompareRV(have.RV, answer.At)
			switch {
			case answer.Exists && have.exists:
				return collection.DriftStale, nil
			case answer.Exists:
				return collection.DriftMissing, nil
			case comparable && newer <= 0: // else it was created after the first answer, and deleted
				return collection.DriftExtra, nil
			}
		}
		answer = again
		have, err = v.await(ctx, key, func(have at) bool { return have.same(answer) || have.reached(answer) })
		if err != nil || have.corrupt || have.same(answer) {
			return "", err
		}
		if !have.reached(answer) {
			break
		}
	}
	v.result.Undecided++
	return "", nil
}

// request sends a request for a single key, at the pace of the comparison.
func request[T any](ctx context.Context, v *comparison, send func(context.Context) (T, error)) (answer T, err error) {
	if err := v.pace.requests.Wait(ctx); err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, collection.RequestTimeout)
	defer cancel()
	return send(ctx)
}

// await waits until done is true of the stored state of a key, the record is corrupt, or patience
// has elapsed.
func (v *comparison) await(ctx context.Context, key string, done func(at) bool) (at, error) {
	until := v.clock.Now().Add(patience)
	for {
		changed := v.Tracker.NextChange()
		have, err := v.have(key)
		if err != nil || have.corrupt || done(have) || v.clock.Now().After(until) {
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
	queue := v.Live().Queue
	for range maxTries {
		before, err := v.have(key)
		if err != nil {
			return false, err
		}
		o, err := request(ctx, v, func(ctx context.Context) (*object.Object, error) { return v.source.Get(ctx, key) })
		var answer upstream.Current
		if err == nil {
			answer = upstream.Current{Exists: true, UID: string(o.GetUID()), RV: o.GetResourceVersion()}
		} else if !errors.Is(err, upstream.ErrNoObject) {
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
		have, err := v.await(ctx, key, func(have at) bool { return have.same(answer) || have.rv != before.rv })
		if err != nil || have.same(answer) {
			return err == nil, err
		}
	}
	return false, nil
}
