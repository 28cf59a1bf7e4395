// Package memory is the store without the disk: for tests, for `--store memory`
// and for informers that want their objects at the speed of a map.
//
// It keeps the contract of package store in every point but durability, and
// passes the suite in store/storetest as store/bolt does. What it rests on:
//
//   - A collection's content (objects, index entries, bytes) lives in
//     copy-on-write ordered trees. A copy costs a few hundred bytes whatever the
//     number of objects; nodes are copied when one of the two sides changes them.
//   - Readers see published snapshots only, through one atomic pointer. A snapshot
//     is never written again, so a view takes no lock that a writer holds and can
//     stay open at the price of the nodes that have changed since.
//   - Every change is made on a copy of the content, which becomes the
//     collection's only when it is whole. That is what makes Apply and
//     Replacement.Commit atomic, and Abort nothing more than forgetting the copy.
//   - The namespace index is read out of the order of the keys; nothing is stored
//     for it.
//
// The order of locks is DB.admin, collection.mu, DB.mu.
package memory
