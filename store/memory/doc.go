// Package memory is the store without the disk: for tests, for `--store memory`
// and for informers.
//
// It keeps the contract of package store in every point but durability, and
// passes the suite in store/storetest as store/bolt does. How a collection is kept:
//
//   - Its objects are in an array of chunks, beside the Go values that they stand for. A B-tree
//     has their places by key, and one for each index by value and key. All of them are copied on
//     write: a snapshot takes the same time for any number of objects, and a view reads one.
//   - A map has the places by key too, for what needs the newest state only.
//   - A small batch changes the newest state in place, under a lock that readers take for a
//     lookup, or to make a snapshot. What takes longer (a large batch, a replacement, the building
//     of an index) is done in a draft, a copy that is swapped in. Index functions are called
//     before the lock is taken.
//   - An object keeps the values that it is filed under, so an index function is called once for
//     each object.
//   - The namespace index is read out of the order of the keys; nothing is stored for it.
//
// The order of locks is DB.admin, collection.writer, collection.mu or DB.mu.
package memory
