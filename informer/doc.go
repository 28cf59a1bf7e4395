// Package informer has client-go's informers on a store that can be durable.
//
// [NewSharedIndexInformer] takes the place of client-go's function of that name; [NewFactory] makes
// informers for a whole program, and [NewFunc] fits controller-runtime's cache. docs/library.md
// describes how to move to them and what is different. They are made of parts that can be used by
// themselves, as in the agent:
//
//   - A [Loop] takes batches from the queue into the store. For each it works out
//     what was there before, hands changes and watermark to the store as one unit,
//     and only then tells the handlers.
//   - A [Processor] tells them, with the semantics of client-go's: each handler gets
//     its events in order, at its own pace, and a slow one never holds up the store
//     or another.
//   - An [Indexer] is a cache.Indexer over a collection, which a [Codec] turns into
//     objects of Go types.
//
// Invariants:
//
//   - The checkpoint that is stored is the batch's watermark, never an object's
//     resourceVersion.
//   - Nothing goes back in time: an event that is older than what is stored (a
//     resumed watch replays some) changes nothing and reaches nobody.
//   - Handlers hear of a list when it is complete, and only of what it changed.
//   - A handler that joins late finds each change once, in its initial list or after
//     it. What waits for it costs keys, not objects, until it is delivered.
//   - A store that fails is tried again; the batch is kept, the queue fills, and
//     the network waits.
package informer
