package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/snapcache/snapcache/deltafifo"
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

// newRelistError returns a [*RelistError], whose Err is made with fmt.Errorf.
func newRelistError(reason store.Reason, format string, args ...any) error {
	return &RelistError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// asRelist returns the proof that err is or wraps, nil for none.
func asRelist(err error) *RelistError {
	refused, _ := errors.AsType[*RelistError](err)
	return refused
}

// Versions returns the versions of objects on the server. *upstream.Source and [ListWatch]
// implement it.
type Versions interface {
	// Current returns the state of the object at key at a resourceVersion or, if that is empty or
	// the server returns no past states, the newest. The result's At is the one only in the first
	// case.
	Current(ctx context.Context, key, at string) (upstream.Current, error)
}

// Canary returns a guard that compares the newest objects of a collection with the server's. A
// server that was restored from a backup and has since gone past the checkpoint passes all other
// checks. But objects that were written after the backup are missing on it, or have other versions.
//
// If the server still has the state at the checkpoint, the objects must be in that state as they
// are stored, even if they have changed since. If it does not, the guard compares with the newest
// state. An object that is missing there proves nothing: it may have been deleted after the
// checkpoint. An error that concerns the request proves nothing either, and is logged. If the
// server can't be reached, or does not serve requests at the moment, the guard returns an error, to
// be retried. If the server has compacted the checkpoint (410) and no object is as it is stored,
// the guard asks for a list, because nothing is left to compare. An agent does not have past states for
// long, but a history that reaches back to the checkpoint is enough if it began before the checkpoint was
// made: the agent has followed the cluster since, and begins another history if that is restored.
func Canary(c store.Collection, server Versions, log *slog.Logger) Guard {
	return func(ctx context.Context) error {
		known, state, err := newestHeaders(c)
		if err != nil {
			return err
		}
		anySame, compacted := false, error(nil)
		for _, h := range known {
			same, err := checkCanary(ctx, server, h, state)
			anySame = anySame || same
			switch {
			case err == nil:
			case asRelist(err) != nil:
				return err
			case ctx.Err() != nil, mayPass(err), errors.Is(err, upstream.ErrLags):
				return fmt.Errorf("compare with the server: %w", err)
			case expired(err):
				compacted = err
			default:
				log.Warn("can't compare a stored object with the server before the resume", "key", h.Key, "error", err)
			}
		}
		if compacted != nil && !anySame {
			// All objects differ and the past state is compacted: the server may have any history.
			return &RelistError{Reason: store.ReasonExpired, Err: compacted}
		}
		return nil
	}
}

// checkCanary reports whether a stored object and the server's are the same. A [*RelistError] means
// that the server's proves another history. A 410 means that the server has compacted the state at
// the checkpoint, and that its newest proves nothing. Any other error is the request's.
func checkCanary(ctx context.Context, server Versions, stored store.Header, state store.State) (same bool, err error) {
	checkpoint := state.RV
	at, known := checkpoint, checkpoint
	if object.NewerRV(stored.RV, checkpoint) {
		at, known = "", stored.RV // a repaired object
	}
	now, err := server.Current(ctx, stored.Key, at)
	var compacted error
	if err != nil && at != "" && ctx.Err() == nil && !mayPass(err) {
		if since, ok := upstream.HistorySince(err); expired(err) && !(ok && since.Before(state.Proven())) {
			compacted = err
		}
		now, err = server.Current(ctx, stored.Key, "")
		at = ""
	}
	then := at != "" && now.At == at
	order, comparable := object.CompareRV(now.ListRV, known)
	switch {
	case err != nil:
		return false, err
	case !then && comparable && now.ListRV != "0" && order < 0: // a list at 0 is of no state
		// The probe has found the server at the checkpoint: this is another one of several.
		return false, fmt.Errorf("%w, which is at %s", upstream.ErrLags, now.ListRV)
	case then && !now.Exists:
		return false, newRelistError(store.ReasonRVAhead, "%s is not on the server at the checkpoint %s, and was at %s before",
			stored.Key, checkpoint, stored.RV)
	case then && now.RV != stored.RV:
		return false, newRelistError(store.ReasonRVAhead, "%s is at %s on the server at the checkpoint %s, and was at %s before",
			stored.Key, now.RV, checkpoint, stored.RV)
	case !now.Exists:
		return false, compacted
	}
	if err := sameHistory(stored, checkpoint, now.UID, now.RV); err != nil {
		return false, err
	}
	if now.RV != stored.RV {
		return false, compacted
	}
	return true, nil
}

// newestHeaders returns the stored headers of a collection's newest objects, and the state of the same
// view. Objects that are missing or corrupt are left out.
func newestHeaders(c store.Collection) (known []store.Header, state store.State, err error) {
	v, err := c.View()
	if err != nil {
		return nil, state, err
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
			return nil, state, err
		}
	}
	return known, v.State(), nil
}

// sameHistory returns nil if the server's version of an object can be of the same history as the
// stored one, else a [*RelistError] with the proof that it can't.
func sameHistory(stored store.Header, checkpoint, uid, rv string) error {
	older, comparable := object.CompareRV(rv, stored.RV)
	past, pastComparable := object.CompareRV(rv, checkpoint)
	switch {
	case rv == stored.RV && (uid == stored.UID || stored.UID == ""): // a transform may drop the UID
		return nil
	case rv == stored.RV:
		return newRelistError(store.ReasonRVAhead, "%s at %s is another object on the server (uid %s) than here (uid %s)",
			stored.Key, rv, uid, stored.UID)
	case comparable && older < 0:
		return newRelistError(store.ReasonRVAhead, "%s is at %s on the server, and was at %s before", stored.Key, rv, stored.RV)
	case pastComparable && past <= 0:
		return newRelistError(store.ReasonRVAhead, "%s is at %s on the server, which the checkpoint %s should have brought",
			stored.Key, rv, checkpoint)
	}
	return nil
}

// clusterChanged returns a [*RelistError] if the server's cluster is not the checkpoint's.
//
// Two forms of an identity ("uid:…", "ca:…") can't be compared: the form depends on permissions, and
// a change of permissions does not change the cluster. The probe follows in any case. A checkpoint
// from another node needs equality, because there, another cluster is the likelier reason.
func (r *Reflector) clusterChanged(cluster string) error {
	form, _, _ := strings.Cut(cluster, ":")
	formBefore, _, _ := strings.Cut(r.cluster, ":")
	if cluster == r.cluster || form != formBefore && !r.opts.ForeignCheckpoint {
		return nil
	}
	return newRelistError(store.ReasonClusterChanged, "checkpoint is of cluster %s, this is %s", r.cluster, cluster)
}

// schemaChanged compares the server's schema with the stored objects'. It returns nil if the two are
// equal, or if the server's is not known now.
func (r *Reflector) schemaChanged(ctx context.Context) error {
	now, err := r.opts.Schema(ctx)
	if err != nil {
		return fmt.Errorf("compare the schema: %w", err)
	}
	return r.anotherSchema(now)
}

// anotherSchema compares a schema, empty if it is not known, with the stored objects'.
func (r *Reflector) anotherSchema(now string) error {
	if now == "" || now == r.schema {
		return nil
	}
	return newRelistError(store.ReasonSchemaChanged, "the schema is %s, and was %s", now, cmp.Or(r.schema, "not known"))
}

// mustBeOneHistory reports whether the next list must have the history of the stored objects: their
// versions are compared with the list's, and readers see the list as a continuation of the stored
// history. The guards have compared the histories before the watch, but after its 410 the list may,
// after some retries, come from a server that was restored meanwhile.
func (r *Reflector) mustBeOneHistory() bool {
	return r.rv != "" && r.reason != store.ReasonInitial && r.reason.TrustsVersions()
}

// compare returns a [*RelistError] if an item of a list can't have the history of the stored one.
func (r *Reflector) compare(key string, held, item deltafifo.Version) error {
	return sameHistory(store.Header{Key: key, UID: held.UID, RV: held.RV}, r.rv, item.UID, item.RV)
}

// wentBack returns an error if a list, which is of the newest state, is older than the checkpoint. It
// is a [*RelistError] if the cluster is. Otherwise this is one server of several that lags, such as an
// agent: a later list is newer.
func (r *Reflector) wentBack(ctx context.Context, rv string) error {
	if order, ok := object.CompareRV(rv, r.rv); !r.mustBeOneHistory() || !ok || order >= 0 {
		return nil
	}
	why := fmt.Errorf("the list is of %s, before the checkpoint %s", rv, r.rv)
	err := r.opts.Source.Probe(ctx, r.rv)
	if rv == "0" || errors.Is(err, upstream.ErrAhead) { // a list at 0 is of no state: no later one is newer
		return &RelistError{Reason: store.ReasonRVAhead, Err: why}
	}
	if err != nil { // it may have the time to wait
		why = fmt.Errorf("%w: %w", why, err)
	}
	return fmt.Errorf("%w: %w", upstream.ErrLags, why)
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

// confirmObjects is the least number of objects of a collection whose mass deletes must be
// confirmed. Smaller collections come and go as a whole.
const confirmObjects = 100

// MassDeleteError is the error of a list that was aborted because it would have deleted more of a
// collection than Options.ConfirmDeletions allows. The next list is applied if it lacks most of the
// same objects.
type MassDeleteError struct {
	Stored    int // objects in the collection
	Deletions int // objects that the list did not have
}

func (e *MassDeleteError) Error() string {
	return fmt.Sprintf("the list would delete %d of %d objects: they are kept until a second list confirms it", e.Deletions, e.Stored)
}

// guardMassDelete returns a [*MassDeleteError] if the keys that a list lacks must not be deleted
// yet. A server that returns a part of a collection, or a proxy that returns an empty list, must do
// so twice: most of the missing keys must have been missing in the list before. The other missing
// keys may be new, because the cluster changes between the two lists; there may be no more of them
// than a single list may delete.
func (r *Reflector) guardMassDelete(held int, missing []string) error {
	percent := r.opts.ConfirmDeletions
	switch {
	case percent <= 0, held < confirmObjects, len(missing)*100 <= held*percent:
		return nil
	case r.reason == store.ReasonInitial, r.reason == store.ReasonScopeChanged:
		return nil // nothing of this scope is stored, or the new scope was asked for
	}
	suspects := sets.New(missing...)
	news := suspects.Difference(r.suspectDeletes).Len()
	if news*2 < len(missing) && news*100 <= held*percent {
		r.opts.Logger.Warn("a second list confirms the deletions", "reason", r.reason, "deletions", len(missing), "objects", held)
		return nil
	}
	r.suspectDeletes = suspects
	r.opts.Logger.Warn("the list is held back", "reason", r.reason, "deletions", len(missing), "objects", held)
	return &MassDeleteError{Stored: held, Deletions: len(missing)}
}
