// Package pipeline keeps one collection of a store up to date: a [reflector.Reflector] reads from the
// server into a queue, and a [Loop] takes batches from the queue into the store, changes and watermark
// as one unit. The [Sink]s get the changes: the handlers of an informer, the events of the Kubernetes
// API, and [Stats], which also decides whether the collection has the server's state.
//
// Invariants:
//
//   - The stored checkpoint is the batch's watermark, never an object's resourceVersion.
//   - Nothing goes back in time: an event that is older than the stored object (a resumed
//     watch replays some) changes nothing and reaches no sink.
//   - Readers and sinks get a list when it is complete, and only its differences.
//   - The loop retries a batch that the store refuses; meanwhile the queue fills and blocks
//     the reflector.
package pipeline
