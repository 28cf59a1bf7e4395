package agent

import (
	"context"
	"errors"
	"time"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/agent/internal/sleep"
	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// verifyTries is how often a key is looked at that changes all the time.
	verifyTries = 5

	// verifyPatience is how long the watch may take to come to what the server said. Where
	// nothing happens it is told by a bookmark, about once a minute.
	verifyPatience = 3 * time.Minute

	// verifyLook is how often it is looked at least.
	verifyLook = 200 * time.Millisecond
)

// at is what is stored under a key, and how far the collection was then.
type at struct {
	store.Header
	exists, damaged bool
	rv              string
}

// suspect looks into a key that looks different, counts it where the difference is real
// and heals it where that is wanted.
func (v *verifier) suspect(ctx context.Context, key string) error {
	kind, err := v.drift(ctx, key)
	if err != nil || kind == "" {
		return err
	}
	v.drifted(key, kind)
	if !v.repair {
		return nil
	}
	for range verifyTries {
		if err := v.heal(ctx, key); err != nil {
			return err
		}
		if kind, err = v.drift(ctx, key); err != nil {
			return err
		}
		if kind == "" {
			v.result.Repaired++
			return nil
		}
	}
	return nil
}

// drift says how a key differs, empty where it does not, or where it can't be told.
//
// A page of the server's list is older than what the watch has brought since, and newer
// than what it has still to bring. So the server is asked about the key by itself,
// and the answer is compared with what is stored once the watch has passed it. What is
// stored then may be newer than the answer: if it differs, the server is asked again,
// and where it says the same, nothing was newer. The watch has brought all up to a
// moment at which the object was as the server says, and it is not so here.
func (v *verifier) drift(ctx context.Context, key string) (collection.DriftKind, error) {
	said, err := v.ask(ctx, key)
	for range verifyTries {
		if err != nil {
			return "", err
		}
		have, err := v.await(ctx, key, said)
		if err != nil {
			return "", err
		}
		switch {
		case have.damaged, have.same(said):
			return "", nil
		case !have.reached(said):
			v.result.Undecided++
			return "", nil
		}
		again, err := v.ask(ctx, key)
		if err != nil {
			return "", err
		}
		newer, comparable := object.CompareRV(have.RV, said.At)
		switch {
		case again.Exists != said.Exists, again.UID != said.UID, again.RV != said.RV:
		case !said.Exists && (!comparable || newer > 0):
			// It was made after the first answer, and is gone again.
		case !said.Exists:
			return collection.DriftExtra, nil
		case !have.exists:
			return collection.DriftMissing, nil
		default:
			return collection.DriftStale, nil
		}
		said = again
	}
	v.result.Undecided++
	return "", nil
}

func (v *verifier) ask(ctx context.Context, key string) (upstream.Current, error) {
	if err := v.pace.looks.Wait(ctx); err != nil {
		return upstream.Current{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, collection.RequestTimeout)
	defer cancel()
	said, err := v.source.Current(ctx, key)
	if err != nil {
		err = keyError{err}
	}
	return said, err
}

// keyError is an error about one object, whose name the log must not have: it is in
// what a server answers.
type keyError struct{ err error }

func (e keyError) Error() string {
	return "an object could not be looked up: " + string(upstream.Kind(e.err))
}
func (e keyError) Unwrap() error { return e.err }

// await waits until what is stored under a key is what the server said, or the watch has
// passed what it said, for as long as patience lasts.
func (v *verifier) await(ctx context.Context, key string, said upstream.Current) (at, error) {
	until := v.clock.Now().Add(verifyPatience)
	for {
		changed := v.Tracker.NextChange()
		have, err := v.have(key)
		if err != nil || have.damaged || have.same(said) || have.reached(said) || v.clock.Now().After(until) {
			return have, err
		}
		if err := sleep.UnlessWoken(ctx, v.clock, verifyLook, changed); err != nil {
			return at{}, err
		}
		v.tell()
	}
}

// have looks at what is stored under a key. It is an error where that can't be compared:
// the collection is not in step, or has become another cluster's.
func (v *verifier) have(key string) (at, error) {
	view, err := v.stored.View()
	if err != nil {
		return at{}, err
	}
	defer view.Close()
	if !v.Watching() || view.State().Cluster != v.cluster {
		return at{}, errNotInStep
	}
	have := at{rv: view.State().RV}
	have.Header, err = view.Header(key)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case errors.As(err, new(*store.CorruptionError)):
		have.damaged = true
	case err != nil:
		return have, err
	default:
		have.exists = true
	}
	return have, nil
}

// same says that what is stored is what the server said.
func (a at) same(said upstream.Current) bool {
	return a.exists == said.Exists && (!a.exists || a.UID == said.UID && a.RV == said.RV)
}

// reached says that the watch has brought all up to what the server said.
func (a at) reached(said upstream.Current) bool {
	cmp, comparable := object.CompareRV(a.rv, said.At)
	return comparable && cmp >= 0
}

// heal puts what the server has under a key in the place of what is stored. The way is
// that of all changes, through the queue, so that handlers and watchers hear of it.
// Where something else comes of the key meanwhile, that has the last word.
func (v *verifier) heal(ctx context.Context, key string) error {
	_, _, queue, _ := v.Live()
	attention := queue.Attend(key)
	defer attention.Close()
	if err := v.pace.looks.Wait(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, collection.RequestTimeout)
	defer cancel()
	o, err := v.source.Get(limited, key)
	if err != nil && !errors.Is(err, upstream.ErrNoObject) {
		return keyError{err}
	}
	err = attention.Correct(o)
	switch {
	case errors.Is(err, deltafifo.ErrChanged), errors.Is(err, deltafifo.ErrReplacing), errors.Is(err, deltafifo.ErrFull):
		return sleep.For(ctx, v.clock, verifyLook) // and try again
	case err != nil:
		return keyError{err}
	}
	// Until it is stored, or something newer: drift looks again.
	said := upstream.Current{Exists: o != nil}
	if o != nil {
		said.UID, said.RV = string(o.GetUID()), o.GetResourceVersion()
	}
	for until := v.clock.Now().Add(collection.RequestTimeout); v.clock.Now().Before(until); {
		have, err := v.have(key)
		if err != nil || have.same(said) || attention.Changed() {
			return err
		}
		if err := sleep.For(ctx, v.clock, verifyLook/4); err != nil {
			return err
		}
	}
	return nil
}
