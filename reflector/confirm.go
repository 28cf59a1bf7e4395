package reflector

import (
	"fmt"

	"github.com/snapcache/snapcache/store"
)

// confirmObjects is how many objects a collection must have for its deletions to be
// confirmed. Small ones come and go as a whole.
const confirmObjects = 100

// HeldBackError says that a list was not believed, because it would have deleted most
// of a collection. The next one is, if most of that is missing there as well.
type HeldBackError struct {
	Held      int // objects in the collection
	Deletions int // those that the list did not have
}

func (e *HeldBackError) Error() string {
	return fmt.Sprintf("the list would delete %d of %d objects: they are kept until a second list says the same", e.Deletions, e.Held)
}

// confirm says whether what a list does not have may be deleted. A server that answers
// with a part of the truth, or a proxy with an empty list, must do so twice: most of what
// is missing must have been missing in the list before. What else is missing rests on this
// list alone, as a cluster goes on between the two, and may be no more than any list may
// delete.
func (r *Reflector) confirm(held int, missing []string) error {
	percent := r.opts.ConfirmDeletions
	switch {
	case percent <= 0, held < confirmObjects, len(missing)*100 <= held*percent:
		return nil
	case r.reason == store.ReasonInitial, r.reason == store.ReasonScopeChanged:
		return nil // nothing that the server had is stored, or that is what was asked for
	}
	news := 0
	for _, key := range missing {
		if _, ok := r.doubted[key]; !ok {
			news++
		}
	}
	if news*2 < len(missing) && news*100 <= held*percent {
		r.opts.Logger.Warn("a second list confirms the deletions", "reason", r.reason, "deletions", len(missing), "objects", held)
		return nil
	}
	r.doubted = make(map[string]struct{}, len(missing))
	for _, key := range missing {
		r.doubted[key] = struct{}{}
	}
	err := &HeldBackError{Held: held, Deletions: len(missing)}
	r.opts.Logger.Warn("the list is held back", "reason", r.reason, "deletions", len(missing), "objects", held)
	r.opts.Observer.HeldBack(len(missing))
	return err
}
