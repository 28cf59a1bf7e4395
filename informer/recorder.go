package informer

import "github.com/snapcache/snapcache/store"

// Recorder gets the changes of a collection after they are in the store, in the loop's goroutine. Its
// methods must not block.
type Recorder interface {
	// Wanted reports whether the next batch is to be recorded. Each object that the batch changes is
	// then read from the store first.
	Wanted() bool

	// Record gets the events of a batch, in the order of the stream, after which the collection is
	// complete up to the resourceVersion rv.
	Record(events []store.Transition, rv string)

	// Skip reports changes that are not recorded, after which the collection is complete up to rv: a
	// list, or a batch that was not wanted.
	Skip(rv string)

	// End reports changes that have no place between the events before and those to come: what was
	// recorded has no meaning any more. Skip follows.
	End()
}

// record reports a batch that is in the store, and that followed the checkpoint before, to the
// recorder. lost is set if the difference does not have all events.
func (l *Loop) record(before store.Checkpoint, diff difference, lost bool) {
	switch {
	case l.opts.Recorder == nil:
	case lost, diff.unknown, !l.recording && len(diff.changes) > 0:
		l.skip(diff.corrected || len(diff.changes) > 0 && before.RV == l.checkpoint.RV)
	default:
		l.opts.Recorder.Record(transitions(diff.notes), l.checkpoint.RV)
	}
}

// skip reports to the recorder that the collection is at the checkpoint, by changes that are not
// recorded. ended is set if they may not be after all those before.
func (l *Loop) skip(ended bool) {
	if l.opts.Recorder == nil {
		return
	}
	if ended {
		l.opts.Recorder.End()
	}
	l.opts.Recorder.Skip(l.checkpoint.RV)
}

// noted reports whether the changes of the batch are noted, for handlers or for the recorder.
func (l *Loop) noted() bool { return l.opts.Processor != nil || l.recording }

func transitions(notes []note) []store.Transition {
	var out []store.Transition
	for _, n := range notes {
		t := store.Transition{Key: n.key}
		if n.old != nil {
			t.Old = n.old.object
		}
		if n.new != nil {
			t.Object, t.RV = n.new.object, n.new.object.GetResourceVersion()
		}
		switch n.kind {
		case noteAdd:
			t.Type = store.Added
		case noteUpdate:
			t.Type = store.Modified
		case noteDelete:
			t.Type = store.Deleted
		default:
			continue
		}
		out = append(out, t)
	}
	return out
}
