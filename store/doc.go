// Package store defines how a collection of objects is kept, and together with
// them the checkpoint: the resourceVersion up to which they are complete.
//
// Two stores implement it: store/bolt on disk and store/memory in memory. Both
// pass the suite in store/storetest. The package knows nothing of Kubernetes
// clients; objects come in as [object.Object].
//
// The rules every store keeps:
//
//   - A checkpoint is stored with the changes it covers, as one atomic unit. It
//     never runs ahead of the objects.
//   - A collection without one complete list is not synced, which is not the same
//     as empty: [State].Synced says so.
//   - A [View] is one consistent state. During a [Replacement] views see the state
//     before it, then the state after it, and nothing between.
//   - Views never block the writer, nor the writer views.
package store
