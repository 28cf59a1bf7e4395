// Package store defines the interface of a store: collections of objects, each with its checkpoint,
// the resourceVersion up to which the objects are complete.
//
// Two stores implement it: store/bolt on disk and store/memory in memory. Both pass the suite in
// store/storetest. The package depends on no Kubernetes client; objects come in as [object.Object].
//
// The rules of every store:
//
//   - A checkpoint is stored with the changes it covers, as one atomic unit. It
//     never runs ahead of the objects.
//   - A collection without a complete list is not synced ([State].Synced), which is not the same
//     as empty.
//   - A [View] is one consistent state. Until a [Replacement] is committed, views show the state
//     before it, then the state after it, and nothing between.
//   - Views never block the writer, and the writer never blocks views.
package store
