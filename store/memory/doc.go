// Package memory is the store without the disk: for tests, for `--store memory`
// and for informers that want their objects at the speed of a map.
//
// It keeps the contract of package store in every point but durability, and
// passes the suite in store/storetest as store/bolt does. What it rests on:
//
//   - A collection's content (objects, index entries, bytes) lives in
//     copy-on-write ordered trees. A copy costs a few hundred bytes whatever the
//     number of objects; nodes are copied when one of the two sides changes them.
//   - Readers see published snapshots only. A snapshot is never written again, so a
//     view can stay open at the price of the nodes that have changed since.
//   - A snapshot is made when a reader first asks for the state it shows; until then
//     the writer changes its trees in place, so that changes nobody looks at one by
//     one cost no copies. A reader may have to wait for the batch that is being
//     applied, but only for a small one: before anything longer (a large batch, an
//     index, a replacement) the state before it is published.
//   - A map beside the trees has the newest objects by key. Views use it while they
//     are the newest state and no writer is in it.
//   - A batch is checked before it is made and a replacement works on a copy, which
//     becomes the collection's only when it is whole. That is what makes Apply and
//     Replacement.Commit atomic, and Abort nothing more than forgetting the copy.
//   - The namespace index is read out of the order of the keys; nothing is stored
//     for it.
//
// The order of locks is DB.admin, collection.mu, collection.hot or DB.mu.
package memory
