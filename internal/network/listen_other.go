//go:build !linux

package network

// listen returns a channel that never has a value.
func listen() (came <-chan struct{}, stop func(), err error) { return nil, func() {}, nil }
