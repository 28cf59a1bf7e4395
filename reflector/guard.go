package reflector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// Guard checks whether a checkpoint may still be used. It returns nil if it may and a
// [*RelistError] if it must not. Any other error means that the check could not be made: the
// reflector waits and retries.
type Guard func(context.Context) error

// RelistError is a guard's proof that a checkpoint must not be used. Reason becomes the reason of
// the list.
type RelistError struct {
	Reason store.Reason
	Err    error
}

func (e *RelistError) Error() string { return string(e.Reason) + ": " + e.Err.Error() }

// Unwrap returns the proof.
func (e *RelistError) Unwrap() error { return e.Err }

// asRelist returns the proof that err is or wraps, nil for none.
func asRelist(err error) *RelistError {
	var refused *RelistError
	errors.As(err, &refused)
	return refused
}

// Versions returns the versions of objects on the server. *upstream.Source and [ListWatch]
// implement it.
type Versions interface {
	// Version returns UID and resourceVersion of the newest state of the object at key, or
	// upstream.ErrNoObject if there is no such object.
	Version(ctx context.Context, key string) (uid, rv string, err error)
}

// PastVersions are [Versions] of a server that also returns past states. *upstream.Source
// implements it.
type PastVersions interface {
	Versions

	// VersionAt is Version in the state at a resourceVersion. then is true if the result, or
	// upstream.ErrNoObject, is of that state.
	VersionAt(ctx context.Context, key, at string) (uid, rv string, then bool, err error)
}

// Canary returns a guard that compares the newest objects of a collection with the server's. A
// server that was restored from a backup and has since gone past the checkpoint passes all other
// checks. But objects that were written after the backup are missing on it, or have other versions.
//
// If the server still has the state at the checkpoint, the objects must be in that state as they
// are stored, even if they have changed since. If it does not, or is no [PastVersions], the guard
// compares with the newest state. An object that is missing there proves nothing: it may have been
// deleted after the checkpoint. An error that concerns the request proves nothing either, and is
// logged. If the server can't be reached, or does not serve requests at the moment, the guard
// returns an error, to be retried. If the server has compacted the checkpoint (410) and no object
// is as it is stored, the guard asks for a list, because nothing is left to compare.
func Canary(c store.Collection, server Versions, log *slog.Logger) Guard {
	return func(ctx context.Context) error {
		known, rv, err := newestHeaders(c)
		if err != nil {
			return err
		}
		same, forgotten := 0, error(nil)
		for _, h := range known {
			err := checkCanary(ctx, server, h, rv)
			switch {
			case err == nil:
				same++
			case errors.Is(err, upstream.ErrNoObject), errors.Is(err, errChanged):
				if expired(err) {
					forgotten = err
				}
			case asRelist(err) != nil:
				return err
			case ctx.Err() != nil, mayPass(err):
				return fmt.Errorf("compare with the server: %w", err)
			default:
				log.Warn("can't compare a stored object with the server before the resume", "key", h.Key, "error", err)
			}
		}
		if same == 0 && forgotten != nil {
			// All objects differ and the past state is compacted: the server may have any history.
			return &RelistError{Reason: store.ReasonExpired, Err: forgotten}
		}
		return nil
	}
}

// errChanged means that the server has another version than the stored one, which proves nothing.
var errChanged = errors.New("changed since")

// checkCanary compares a stored object with the server's. It returns nil if the two are the same, a
// [*RelistError] if the server's version proves another history, and the error of the request
// otherwise. errChanged and upstream.ErrNoObject prove nothing; both also wrap the 410 if the
// server has compacted the state at the checkpoint.
func checkCanary(ctx context.Context, server Versions, stored store.Header, checkpoint string) error {
	var forgotten error
	if past, ok := server.(PastVersions); ok && !after(stored.RV, checkpoint) {
		uid, rv, then, err := past.VersionAt(ctx, stored.Key, checkpoint)
		gone := errors.Is(err, upstream.ErrNoObject)
		switch {
		case then && gone:
			return &RelistError{Reason: store.ReasonRVAhead, Err: fmt.Errorf("%s is not on the server at the checkpoint %s, and was at %s before", stored.Key, checkpoint, stored.RV)}
		case err == nil && then && rv != stored.RV:
			return &RelistError{Reason: store.ReasonRVAhead, Err: fmt.Errorf("%s is at %s on the server at the checkpoint %s, and was at %s before", stored.Key, rv, checkpoint, stored.RV)}
		case err == nil || gone:
			return checkAnswer(stored, checkpoint, uid, rv, err)
		case ctx.Err() != nil, mayPass(err):
			return err
		case expired(err):
			forgotten = err
		}
		// The server has compacted that state, or returns no past states: compare the newest.
	}
	uid, rv, err := server.Version(ctx, stored.Key)
	err = checkAnswer(stored, checkpoint, uid, rv, err)
	if forgotten != nil && (errors.Is(err, upstream.ErrNoObject) || errors.Is(err, errChanged)) {
		err = fmt.Errorf("%w: %w", err, forgotten)
	}
	return err
}

// checkAnswer turns a server's answer into an error as checkCanary describes: err if it is set, a
// [*RelistError] if the version proves another history, and errChanged if it only differs.
func checkAnswer(stored store.Header, checkpoint, uid, rv string, err error) error {
	if err != nil {
		return err
	}
	if err := sameHistory(stored, checkpoint, uid, rv); err != nil {
		return &RelistError{Reason: store.ReasonRVAhead, Err: err}
	}
	if rv != stored.RV {
		return errChanged
	}
	return nil
}

// after reports whether a resourceVersion is known to be after another one.
func after(rv, checkpoint string) bool {
	cmp, ok := object.CompareRV(rv, checkpoint)
	return ok && cmp > 0
}

// newestHeaders returns the stored headers of a collection's newest objects, and the checkpoint of
// the same view. Objects that are missing or corrupt are left out.
func newestHeaders(c store.Collection) (known []store.Header, rv string, err error) {
	v, err := c.View()
	if err != nil {
		return nil, "", err
	}
	defer v.Close() // before the server is asked
	for _, key := range v.State().Newest {
		if key == "" {
			continue
		}
		switch h, err := v.Header(key); {
		case err == nil:
			known = append(known, h)
		case errors.Is(err, store.ErrNotFound), errors.As(err, new(*store.CorruptionError)):
		default:
			return nil, "", err
		}
	}
	return known, v.State().RV, nil
}

// sameHistory returns nil if the server's version of an object can be of the same history as the
// stored one, else an error with the proof that it can't.
func sameHistory(stored store.Header, checkpoint, uid, rv string) error {
	if uid == stored.UID && rv == stored.RV {
		return nil
	}
	older, comparable := object.CompareRV(rv, stored.RV)
	past, pastComparable := object.CompareRV(rv, checkpoint)
	switch {
	case rv == stored.RV && stored.UID == "":
		return nil // a transform has dropped the UID
	case rv == stored.RV:
		return fmt.Errorf("%s at %s is another object on the server (uid %s) than here (uid %s)", stored.Key, rv, uid, stored.UID)
	case comparable && older < 0:
		return fmt.Errorf("%s is at %s on the server, and was at %s before", stored.Key, rv, stored.RV)
	case pastComparable && past <= 0:
		return fmt.Errorf("%s is at %s on the server, which the checkpoint %s should have brought", stored.Key, rv, checkpoint)
	}
	return nil
}

// mayPass reports whether a request may succeed later: the server could not be reached, or refused
// any request.
func mayPass(err error) bool {
	switch upstream.Classify(err) {
	case upstream.Unreachable, upstream.Untrusted, upstream.Unauthorized, upstream.Throttled:
		return true
	}
	return false
}
