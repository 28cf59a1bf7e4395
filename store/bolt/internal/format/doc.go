// Package format has the bytes of a database file: what is in a key or a value, and the
// names of buckets and keys. It knows neither files nor bbolt, and does no I/O: every
// function takes or returns bytes, and every decoder is safe on any input.
//
// A value that readers depend on has a checksum in it that covers its name too, see
// frame.go. A decoder returns an error for a value that does not match its checksum, and
// never a part of it.
package format
