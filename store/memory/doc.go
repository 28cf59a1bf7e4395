// Package memory is the store without the disk: for tests, for `--store memory`
// and for informers.
//
// It fulfils the contract of package store except durability, and passes the suite in
// store/storetest as store/bolt does. The data structures of a collection:
//
//   - The objects are in an array of chunks, beside their Go forms. One B-tree has the objects'
//     positions by key, and one B-tree for each index has them by value and key. All of these are
//     copied on write: a snapshot takes constant time, and a view reads one snapshot.
//   - A map also has the positions by key, for reads of the newest state.
//   - A small batch changes the newest state in place, under a lock that readers take for a
//     lookup, or to make a snapshot. Longer changes (a large batch, a replacement, the build of an
//     index) are made in a draft, a copy that is swapped in. Index functions are called before the
//     lock is taken.
//   - A record has its object's index values, so an index function is called once for each object.
//   - The namespace index is derived from the order of the keys; nothing is stored for it.
//
// The order of locks is DB.admin, collection.writer, collection.mu or DB.mu.
package memory
