// Package openapi keeps a copy of a server's OpenAPI v3 documents on disk and serves it, so that
// kubectl can explain and validate without the server.
//
// A document is a file of its own: gzip, with the document's path and the server's hash of it in the
// gzip header. There is no other state, so a crash can't leave two files that contradict each other.
//
// Invariants:
//
//   - A document is served whole, or not at all. A file that fails gzip's checksum is left out of the
//     index, and the next refresh replaces it.
//   - A refresh that fails leaves the documents that it could not replace as they were.
//   - No document is in memory as a whole.
package openapi
