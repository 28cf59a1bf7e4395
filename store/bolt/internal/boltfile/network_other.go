//go:build !linux

package boltfile

// NetworkFS returns the empty name: this platform recognises no network file system.
func NetworkFS(string) (string, error) { return "", nil }
