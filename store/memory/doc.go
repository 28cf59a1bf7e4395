// Package memory is the store without the disk: for tests, for `--store memory` and for informers.
//
// It fulfils the contract of package store except durability and the history of changes, and passes the
// suite in store/storetest as store/bolt does. A collection has its newest state twice:
//
//   - A map by key for single reads, and an array for lists, which batches change in place under a
//     short lock. The array is copied on write, so a list does not hold that lock.
//   - B-trees that are copied on write, by key and by index value, for views. They follow when a
//     reader needs a view, so that a collection without such readers pays nothing for them.
//
// A long change (a large batch, a replacement, a new index) is made in a draft, a copy that is
// swapped in. Index functions are called before a lock is taken that readers need.
//
// The order of locks is DB.admin, collection.writer, collection.ordering, collection.mu or DB.mu.
package memory
