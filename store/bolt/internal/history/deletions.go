package history

// DeletePlaced records the deletion of a change's old object if it has a place: its resourceVersion is
// known, or another object of the same name comes after it.
func (r *Recorder) DeletePlaced(c Change) error {
	switch {
	case !r.Recording(), c.Old == nil:
		return nil
	case c.New == nil && r.placed(c):
		was, err := r.forget(c.Key, c.Old.RV)
		if err != nil {
			return err
		}
		_, err = r.putTombstone(c, was, digits(c.Deletion), c.Deletion, before)
		return err
	case c.New != nil && c.Old.UID != c.New.UID:
		_, err := r.putTombstone(c, r.replaced[c.Key], before(c.New.RV), c.New.RV, before)
		return err
	}
	return nil
}

// placed reports whether the resourceVersion of a deletion is known.
func (r *Recorder) placed(c Change) bool {
	return after(c.Deletion, r.known) && !after(c.Old.RV, c.Deletion)
}

// Replaced reports whether another object than before has a key, once that went through Upsert.
func (r *Recorder) Replaced(key string) bool {
	_, replaced := r.replaced[key]
	return replaced
}

// DeleteUnplaced records the deletion of a change's old object if its resourceVersion is not known, except
// that it is past the checkpoint before the batch, and not past that after it.
//
// If a reader may be in between, it is one of the highest free ones, so that none misses the deletion.
// After a list it is one of the lowest: a client that has not got all of the changes may continue at another
// server. A deletion that came too early comes there again; one that has not come would never come.
func (r *Recorder) DeleteUnplaced(c Change) error {
	if !r.Recording() || c.Old == nil || c.New != nil || r.placed(c) {
		return nil
	}
	was, err := r.forget(c.Key, c.Old.RV)
	if err != nil {
		return err
	}
	from, step := digits(r.next), before
	if r.unseen {
		from, step = successor(r.known), successor
	}
	if r.free != "" { // a batch may have many such deletions
		from = r.free
	}
	if r.unseen && after(c.Old.RV, r.known) {
		_, err = r.putTombstone(c, was, higher(from, successor(c.Old.RV)), r.next, step)
		return err
	}
	r.free, err = r.putTombstone(c, was, from, r.next, step)
	return err
}

// putTombstone records the deletion of a key's object under a free resourceVersion. It searches from one
// on with step, [before] or [successor]; the number must be past the checkpoint before the batch and past
// the object's resourceVersion, and not past last. It returns where the search has ended.
func (r *Recorder) putTombstone(c Change, was Entry, from, last string, step func(string) string) (string, error) {
	above := higher(r.known, c.Old.RV)
	deletion := was
	deletion.Key, deletion.Deleted, deletion.Time = c.Key, true, r.now
	rv := from
	for ; c.Bury != nil && after(rv, above) && !after(rv, last); rv = step(rv) {
		_, taken, err := r.table.Get(Key(rv))
		if err != nil {
			return rv, err
		}
		if taken {
			continue
		}
		if err := r.set(Key(rv), deletion); err != nil {
			return rv, err
		}
		n, err := c.Bury(rv)
		r.head.Bytes += n
		return rv, err
	}
	r.lose(c.Old.RV)
	if c.New != nil {
		r.lose(c.New.RV)
	}
	return rv, nil
}
