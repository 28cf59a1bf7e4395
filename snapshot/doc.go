// Package snapshot keeps copies of a database in files of their own: compressed, with a manifest of
// their content, and with checksums.
//
// Invariants:
//
//   - A file with the name of a snapshot is complete. It is written under a temporary
//     name, synced, renamed, and the directory is synced. Leftovers of a crash are
//     removed when the next snapshot is made or rotated.
//   - A snapshot is one state that the database had: objects, indexes, history and
//     checkpoint belong together.
//   - No part of a snapshot is used before the whole file was read and its checksums verified.
//   - The manifest can be read without the rest.
//
// docs/file-format.md describes the layout of the file.
package snapshot
