// Package boltfile is one bbolt file and everything about its safety: it is the only
// package that imports bbolt.
//
//   - A File is read and written through transactions, which encrypt and decrypt if it is
//     encrypted. Everything that touches its mapping runs in [File.Read], which turns a page
//     that can't be read, and bbolt's assertions, into a *store.CorruptionError.
//   - A Handle is the current file of a database. A compaction swaps it under the readers.
//   - A Committer commits to the current file, stamps each transaction, and repeats the last
//     fsync of a commit until it succeeds, before anything else is written.
//   - Opening a file refuses, before bbolt follows anything in it, a file that is truncated,
//     can't be mapped or is on a network file system; CheckPages looks at every page.
//
// It does not depend on collections: of the content it reads the meta bucket, and the places of the
// buckets whose values are encrypted.
package boltfile
