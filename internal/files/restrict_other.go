//go:build !unix

package files

// restrict does nothing: the file gets the access rights of its directory.
func restrict(uintptr) {}
