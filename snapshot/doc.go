// Package snapshot keeps copies of a database in files of their own: compressed,
// with a manifest that says what is in them, and with checksums.
//
// What holds:
//
//   - A file under the name of a snapshot is whole. It is written under a temporary
//     name, synced, renamed, and the directory is synced; what a crash leaves is
//     removed the next time that a snapshot is made or rotated.
//   - A snapshot is one state that the database was in: objects, indexes, history and
//     checkpoint belong together.
//   - Nothing of a snapshot is used before all of it was read and stood its checksums.
//   - The manifest can be read without the rest.
//
// A file is laid out as docs/file-format.md says.
package snapshot
