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

// Guard says whether a checkpoint may still be used. nil is yes, a [*RelistError] is
// no; any other error says that it can't be told at the moment, and is a reason to
// wait.
type Guard func(context.Context) error

// RelistError is a guard's proof that a checkpoint must not be used.
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

// Versions tells which version of an object the server has. *upstream.Source and
// [ListWatch] do.
type Versions interface {
	// Version returns UID and resourceVersion of the newest state of the object at key.
	// upstream.ErrNoObject says that there is none.
	Version(ctx context.Context, key string) (uid, rv string, err error)
}

// PastVersions are [Versions] of a server that can also be asked for what was.
// *upstream.Source does.
type PastVersions interface {
	Versions

	// VersionAt is Version in the state at a resourceVersion. then says that the answer,
	// or upstream.ErrNoObject, is of that state.
	VersionAt(ctx context.Context, key, at string) (uid, rv string, then bool, err error)
}

// Canary returns a guard that compares the newest objects of a collection with the
// server's. A server that was restored from a backup and has since gone past the
// checkpoint answers every other question as if nothing had happened; but what was
// written after the backup, it has not, or has otherwise.
//
// Where the server still knows the state at the checkpoint, the objects must be in it
// as they are stored, whatever became of them since. Where it does not, or is no
// [PastVersions], the newest state has to do: an object that the server does not have
// then proves nothing, for it may have been deleted after the checkpoint. Neither does
// an answer that says nothing about the object; that is logged. Only where the server
// can't be asked the guard waits. Where it has forgotten the checkpoint (410) and none of
// the objects is as it was, that is a reason to list, for nothing is left to tell by.
func Canary(c store.Collection, server Versions, log *slog.Logger) Guard {
	return func(ctx context.Context) error {
		known, rv, err := canaries(c)
		if err != nil {
			return err
		}
		same, forgotten := 0, error(nil)
		for _, h := range known {
			err := proves(ctx, server, h, rv)
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
				log.Warn("what is stored can't be compared with the server before the watch is resumed", "key", h.Key, "error", err)
			}
		}
		if same == 0 && forgotten != nil {
			// Nothing is as it was, and the server can't tell what was: it may be of any
			// history.
			return &RelistError{Reason: store.ReasonExpired, Err: forgotten}
		}
		return nil
	}
}

// errChanged says that the server has another version than the stored one, as it may.
var errChanged = errors.New("changed since")

// proves asks a server for an object. It returns nil where that is as it is stored, a
// [*RelistError] where the answer proves that the server's history is not the one that the
// object was stored from, and what it could not be asked for otherwise. errChanged and
// upstream.ErrNoObject prove nothing; they come with a 410 where the server has forgotten
// what was at the checkpoint.
func proves(ctx context.Context, server Versions, stored store.Header, checkpoint string) error {
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
			return historyOf(stored, checkpoint, uid, rv, err)
		case ctx.Err() != nil, mayPass(err):
			return err
		case expired(err):
			forgotten = err
		}
		// It has forgotten, or can't be asked so.
	}
	uid, rv, err := server.Version(ctx, stored.Key)
	err = historyOf(stored, checkpoint, uid, rv, err)
	if forgotten != nil && (errors.Is(err, upstream.ErrNoObject) || errors.Is(err, errChanged)) {
		err = fmt.Errorf("%w: %w", err, forgotten)
	}
	return err
}

// historyOf is contradicts for a server's answer.
func historyOf(stored store.Header, checkpoint, uid, rv string, err error) error {
	if err != nil {
		return err
	}
	if err := contradicts(stored, checkpoint, uid, rv); err != nil {
		return &RelistError{Reason: store.ReasonRVAhead, Err: err}
	}
	if rv != stored.RV {
		return errChanged
	}
	return nil
}

// after says that a resourceVersion is known to be after another one.
func after(rv, checkpoint string) bool {
	cmp, ok := object.CompareRV(rv, checkpoint)
	return ok && cmp > 0
}

// canaries returns what is stored of a collection's newest objects, and the
// checkpoint that goes with it.
func canaries(c store.Collection) (known []store.Header, rv string, err error) {
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

// contradicts returns how the server's version of an object can't be of the same
// history as the stored one, nil where it can.
func contradicts(stored store.Header, checkpoint, uid, rv string) error {
	if uid == stored.UID && rv == stored.RV {
		return nil
	}
	older, comparable := object.CompareRV(rv, stored.RV)
	past, told := object.CompareRV(rv, checkpoint)
	switch {
	case rv == stored.RV && stored.UID == "":
		return nil // a transform that left it out
	case rv == stored.RV:
		return fmt.Errorf("%s at %s is another object on the server (uid %s) than here (uid %s)", stored.Key, rv, uid, stored.UID)
	case comparable && older < 0:
		return fmt.Errorf("%s is at %s on the server, and was at %s before", stored.Key, rv, stored.RV)
	case told && past <= 0:
		return fmt.Errorf("%s is at %s on the server, which the checkpoint %s should have brought", stored.Key, rv, checkpoint)
	}
	return nil
}

// mayPass says that a request failed for a reason that is not the request's.
func mayPass(err error) bool {
	switch upstream.Kind(err) {
	case upstream.Unreachable, upstream.Untrusted, upstream.Unauthorized, upstream.Throttled:
		return true
	}
	return false
}
