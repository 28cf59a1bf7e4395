//go:build !linux

package bolt

// networkFS knows none.
func networkFS(string) (string, error) { return "", nil }
