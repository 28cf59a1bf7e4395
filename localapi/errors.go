package localapi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/snapcache/snapcache/store"
)

var (
	// ErrBadQuery says that a question can't be understood, such as one with a label
	// selector that does not parse.
	ErrBadQuery = errors.New("bad query")

	// ErrNoAgent says that nobody answers on a socket.
	ErrNoAgent = errors.New("no agent answers")

	// ErrSocketTaken says that a socket can't be listened on because an agent
	// answers there.
	ErrSocketTaken = errors.New("another agent answers")
)

// maxDamages bounds how many damaged records an answer names.
const maxDamages = 100

// DamageError says that stored records are damaged. Everything else that was
// asked for was given before it is returned.
type DamageError struct {
	// Damages are the first of them, in key order.
	Damages []*store.CorruptionError

	// More is how many there are besides.
	More int
}

// Error names each damaged record on a line of its own.
func (e *DamageError) Error() string {
	var b strings.Builder
	for i, d := range e.Damages {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(d.Error())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more damaged records", e.More)
	}
	return b.String()
}

// Unwrap makes errors.As find a *store.CorruptionError.
func (e *DamageError) Unwrap() []error {
	errs := make([]error, len(e.Damages))
	for i, d := range e.Damages {
		errs[i] = d
	}
	return errs
}

// damage collects what a scan finds damaged. A key that is met several times, as
// in an index, counts once as long as it is among those that are named.
type damage struct {
	found DamageError
	seen  map[string]bool
}

// add takes err and says whether it is damage, which a scan goes on after.
func (d *damage) add(err error) bool {
	var c *store.CorruptionError
	if !errors.As(err, &c) {
		return false
	}
	if d.seen[c.Key] && c.Key != "" {
		return true
	}
	if len(d.found.Damages) == maxDamages {
		d.found.More++
		return true
	}
	if d.seen == nil {
		d.seen = make(map[string]bool)
	}
	d.seen[c.Key] = true
	d.found.Damages = append(d.found.Damages, c)
	return true
}

// err returns what was found, nil for nothing.
func (d *damage) err() error {
	if len(d.found.Damages) == 0 {
		return nil
	}
	return &d.found
}
