//go:build !unix

package snapshot

// lock does nothing, because there are no advisory locks: the operator has to make sure that only
// one process makes snapshots at a time.
func (Dir) lock() (unlock func() error, err error) { return func() error { return nil }, nil }
