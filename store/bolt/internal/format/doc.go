// Package format defines the bytes of a database file: the content of keys and values, and the
// names of buckets and keys. It does no I/O and does not depend on bbolt: every function takes or
// returns bytes, and every decoder is safe on any input.
//
// A value that readers depend on contains a checksum over its name and content, see frame.go. A
// decoder returns an error for a value that does not match its checksum, and never a part of it.
package format
