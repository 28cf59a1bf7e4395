// Package memory is the store without the disk: for tests, for `--store memory`
// and for informers that want their objects at the speed of a map.
//
// It keeps the contract of package store in every point but durability, and
// passes the suite in store/storetest as store/bolt does. What it rests on:
//
//   - A collection's objects lie in pages of some hundred, ordered by key; an index has
//     the keys under each value in such pages. Both are copied on write: a copy is
//     made at once, and what is changed afterwards costs the page it is in, once, and
//     the list of pages, which has 24 bytes for some hundred objects.
//   - Readers see published snapshots only. A snapshot is never written again, so a
//     view can stay open at the price of the pages that have changed since.
//   - A map has the newest objects by key, and is what a change is made in at once. Where
//     a key is among the others matters to those only who list them: keys that come and
//     go wait, up to a quarter of all, and find their places together. What is deleted
//     keeps its place until then, with nothing in it, as it may be back. The keys under each
//     value of an index wait too, in the bucket of the value: the first who asks for it
//     gives them their places, for all who look at that snapshot.
//   - A snapshot is made when a reader first asks for the state it shows; until then
//     the writer changes its pages in place, so that changes nobody looks at one by
//     one cost no copies. A reader may have to wait for the batch that is being
//     applied, but only for a small one: before anything longer (a large batch, an
//     index, a replacement) the state before it is published.
//   - A view looks into the map too while it is of the newest state and no writer is in
//     the way.
//   - A batch is checked before it is made and a replacement works on a copy, which
//     becomes the collection's only when it is whole. That is what makes Apply and
//     Replacement.Commit atomic, and Abort nothing more than forgetting the copy.
//   - The values that each index files an object under are kept with it, so that an
//     index function is asked once about each object.
//   - The namespace index is read out of the order of the keys; nothing is stored
//     for it.
//
// The order of locks is DB.admin, collection.mu, collection.hot or DB.mu.
package memory
