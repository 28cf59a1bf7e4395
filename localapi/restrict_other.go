//go:build !unix

package localapi

// restrict does nothing: the file gets the access rights of its directory.
func restrict(uintptr) {}
