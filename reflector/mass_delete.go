package reflector

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/snapcache/snapcache/store"
)

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
