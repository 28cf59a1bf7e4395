// Package informer implements client-go's informers on a store that can be durable.
//
// For programs there are [NewSharedIndexInformer], [NewFactory] and, for controller-runtime, [NewFunc]:
// see docs/library.md. They consist of parts that can be used separately, as in the agent:
//
//   - A [Loop] takes batches from the queue into the store: changes and watermark as one unit,
//     and only then the changes to the handlers.
//   - A [Processor] delivers the changes: each handler gets its events in order, at its own pace,
//     and a slow one never holds up the store or another.
//   - An [Indexer] is a cache.Indexer over a collection, which a [Codec] decodes.
//
// Invariants:
//
//   - The stored checkpoint is the batch's watermark, never an object's resourceVersion.
//   - Nothing goes back in time: an event that is older than the stored object (a resumed
//     watch replays some) changes nothing and reaches no handler.
//   - Handlers get a list when it is complete, and only its differences.
//   - A handler that joins late gets each change once, in its initial list or after it. Its
//     backlog holds keys, not objects, until they are delivered.
//   - The loop retries a batch that the store refuses; meanwhile the queue fills and blocks
//     the reflector.
package informer
