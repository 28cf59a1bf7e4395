package deltafifo

import (
	"iter"
	"maps"
	"slices"
)

// listed is the keys that a list has named so far, beside the keys that the consumer holds.
//
// API servers list in the order of the keys. A list in that order needs memory for the keys that are held
// and not listed, whatever its size. Of any other list, each key that comes after a higher one is kept.
//
// Only the producer uses it, without a lock.
type listed struct {
	held KnownObjects // nil for none

	// The held keys are read in step with the list: next is the lowest that the list has not passed.
	pull  func() (string, error, bool) // nil before the first
	stop  func()
	next  string
	more  bool // there is a next
	count int  // of held keys read
	err   error

	highest string          // of the keys of the list; empty before the first
	missing []string        // held keys below highest that were not listed when it passed them, in order
	others  map[string]bool // keys named after a higher one, and dropped ones, which have false
}

func newListed(held KnownObjects) *listed { return &listed{held: held, others: map[string]bool{}} }

// name adds a key of the list. again reports whether it may have been there before: a key that comes after a
// higher one may.
//
// An error is of reading the held keys. It remains.
func (l *listed) name(key string) (again bool, err error) {
	if key <= l.highest {
		l.others[key] = true
		return true, l.err
	}
	l.highest = key
	for l.read(); l.more && l.next < key; l.advance() {
		l.missing = append(l.missing, l.next)
	}
	if l.more && l.next == key {
		l.advance()
	}
	return false, l.err
}

// drop removes a key from the list, if it may be there.
func (l *listed) drop(key string) {
	if key <= l.highest {
		l.others[key] = false
	}
}

// repeated reports whether a key may have come again, or was dropped.
func (l *listed) repeated() bool { return len(l.others) > 0 }

// end returns the number of held keys, the held keys that are not in the list, and the dropped keys that are
// not known to be held, all in order.
func (l *listed) end() (held int, missing, dropped []string, err error) {
	defer l.close()
	for l.read(); l.more; l.advance() {
		l.missing = append(l.missing, l.next)
	}
	if l.err != nil {
		return 0, nil, nil, l.err
	}
	missing = slices.DeleteFunc(l.missing, func(key string) bool { return l.others[key] })
	passed := len(missing)
	for _, key := range slices.Sorted(maps.Keys(l.others)) {
		if _, found := slices.BinarySearch(missing[:passed], key); found || l.others[key] {
			continue
		}
		isHeld := false
		if l.held != nil {
			if _, _, isHeld, err = l.held.Version(key); err != nil {
				return 0, nil, nil, err
			}
		}
		if isHeld {
			missing = append(missing, key)
		} else {
			dropped = append(dropped, key)
		}
	}
	slices.Sort(missing)
	return l.count, missing, dropped, nil
}

// read reads the first held key, unless that is done.
func (l *listed) read() {
	if l.pull == nil && l.held != nil {
		l.pull, l.stop = iter.Pull2(l.held.Keys())
		l.advance()
	}
}

func (l *listed) advance() {
	l.next, l.err, l.more = l.pull()
	if l.more = l.more && l.err == nil; l.more {
		l.count++
	}
}

// close ends the reads of held keys. It may be called again.
func (l *listed) close() {
	if l.stop != nil {
		l.stop()
	}
}
