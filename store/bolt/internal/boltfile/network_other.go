//go:build !linux

package boltfile

// NetworkFS recognises none.
func NetworkFS(string) (string, error) { return "", nil }
