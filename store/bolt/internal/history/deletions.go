package history

// DeletePlaced records the deletion of a change's old object if it has a place: its resourceVersion is
// known, or another object of the same name comes after it.
func (l *Log) DeletePlaced(c Change) error {
	switch {
	case !l.Recording(), c.Old == nil:
		return nil
	case c.New == nil && l.placed(c):
		was, err := l.forget(c.Key, c.Old.RV)
		if err != nil {
			return err
		}
		_, err = l.putTombstone(c, was, digits(c.Deletion), c.Deletion, before)
		return err
	case c.New != nil && c.Old.UID != c.New.UID:
		_, err := l.putTombstone(c, l.replaced[c.Key], before(c.New.RV), c.New.RV, before)
		return err
	}
	return nil
}

// placed reports whether the resourceVersion of a deletion is known.
func (l *Log) placed(c Change) bool {
	return after(c.Deletion, l.known) && !after(c.Old.RV, c.Deletion)
}

// Replaced reports whether another object than before has a key, once that went through Upsert.
func (l *Log) Replaced(key string) bool {
	_, replaced := l.replaced[key]
	return replaced
}

// DeleteUnplaced records the deletion of a change's old object if its resourceVersion is not known, except
// that it is past the checkpoint before the batch, and not past that after it.
//
// If a reader may be in between, it is one of the highest free ones, so that none misses the deletion.
// After a list it is one of the lowest: a client that has not got all of the changes may continue at another
// server. A deletion that came too early comes there again; one that has not come would never come.
func (l *Log) DeleteUnplaced(c Change) error {
	if !l.Recording() || c.Old == nil || c.New != nil || l.placed(c) {
		return nil
	}
	was, err := l.forget(c.Key, c.Old.RV)
	if err != nil {
		return err
	}
	from, step := digits(l.next), before
	if l.unseen {
		from, step = successor(l.known), successor
	}
	if l.free != "" { // a batch may have many such deletions
		from = l.free
	}
	if l.unseen && after(c.Old.RV, l.known) {
		_, err = l.putTombstone(c, was, higher(from, successor(c.Old.RV)), l.next, step)
		return err
	}
	l.free, err = l.putTombstone(c, was, from, l.next, step)
	return err
}

// putTombstone records the deletion of a key's object under a free resourceVersion. It searches from one
// on with step, [before] or [successor]; the number must be past the checkpoint before the batch and past
// the object's resourceVersion, and not past last. It returns where the search has ended.
func (l *Log) putTombstone(c Change, was Entry, from, last string, step func(string) string) (string, error) {
	above := higher(l.known, c.Old.RV)
	deletion := was
	deletion.Key, deletion.Deleted, deletion.Time = c.Key, true, l.now
	rv := from
	for ; c.Bury != nil && after(rv, above) && !after(rv, last); rv = step(rv) {
		_, taken, err := l.table.Get(Key(rv))
		if err != nil {
			return rv, err
		}
		if taken {
			continue
		}
		if err := l.set(Key(rv), deletion); err != nil {
			return rv, err
		}
		n, err := c.Bury(rv)
		l.head.Bytes += n
		return rv, err
	}
	l.lose(c.Old.RV)
	if c.New != nil {
		l.lose(c.New.RV)
	}
	return rv, nil
}
