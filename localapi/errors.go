package localapi

import (
	"errors"
	"fmt"

	"github.com/snapcache/snapcache/store"
)

var (
	// ErrBadQuery means that a query is not valid, for example because its label selector does not
	// parse.
	ErrBadQuery = errors.New("bad query")

	// ErrNoAgent means that no agent answers on a socket.
	ErrNoAgent = errors.New("no agent answers")

	// ErrOtherServer means that a socket belongs to another program, or to an agent of another version.
	ErrOtherServer = errors.New("it may have another version")
)

// maxDamages limits the corrupt records that an answer names.
const maxDamages = 100

// CorruptRecordsError means that stored records are corrupt. Everything else in the query was delivered
// before.
type CorruptRecordsError struct {
	// Corruptions are the first corrupt records, in key order.
	Corruptions []*store.CorruptionError

	// More is the number of further corrupt records.
	More int
}

// Error returns a text with each corrupt record on a line of its own.
func (e *CorruptRecordsError) Error() string {
	errs := e.Unwrap()
	if e.More > 0 {
		errs = append(errs, fmt.Errorf("and %d more corrupt records", e.More))
	}
	return fmt.Sprint(errors.Join(errs...))
}

// Unwrap lets errors.As find a *store.CorruptionError.
func (e *CorruptRecordsError) Unwrap() []error {
	errs := make([]error, len(e.Corruptions))
	for i, d := range e.Corruptions {
		errs[i] = d
	}
	return errs
}

// damage collects the corrupt records of a scan. A key that is found several times, as in an index,
// counts once if it is among the first maxDamages.
type damage struct {
	found CorruptRecordsError
	seen  map[string]bool
}

// add records err and reports whether it is corruption, after which a scan continues.
func (d *damage) add(err error) bool {
	if all, ok := errors.AsType[*CorruptRecordsError](err); ok {
		for _, c := range all.Corruptions {
			d.add(c)
		}
		d.found.More += all.More
		return true
	}
	c, ok := errors.AsType[*store.CorruptionError](err)
	if !ok {
		return false
	}
	place := c.Collection + "\x00" + c.Key
	switch {
	case d.seen[place] && c.Key != "":
	case len(d.found.Corruptions) == maxDamages:
		d.found.More++
	default:
		if d.seen == nil {
			d.seen = make(map[string]bool)
		}
		d.seen[place] = true
		d.found.Corruptions = append(d.found.Corruptions, c)
	}
	return true
}

// skip returns a function for a spool's entries that records corrupt ones, and calls fn with the others.
func (d *damage) skip(fn func(head, object []byte) error) func(head, object []byte, err error) error {
	return func(head, object []byte, err error) error {
		switch {
		case d.add(err):
			return nil
		case err != nil:
			return err
		}
		return fn(head, object)
	}
}

// err returns the collected errors, or nil if there are none.
func (d *damage) err() error {
	if len(d.found.Corruptions) == 0 {
		return nil
	}
	return &d.found
}
