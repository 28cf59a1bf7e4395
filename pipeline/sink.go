package pipeline

import "github.com/snapcache/snapcache/store"

// Sink gets the changes of a collection, in the loop's goroutine. Its methods must not block.
type Sink interface {
	// Wanted reports whether the sink needs the transitions of the next batch, or part of a list. Each
	// object that these change is then read from the store first. Commit follows each batch that is no
	// part of a list, unless the loop ends.
	Wanted(list bool) bool

	// Commit calls apply, which puts the changes into the store, and returns its error, if any. Then
	// the changes are not in the store, and Commit is called again.
	Commit(c store.Changeset, apply func() error) error
}
