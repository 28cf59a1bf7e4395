// Package informer implements client-go's informers on a store that can be durable.
//
// For programs there are [NewSharedIndexInformer], [NewFactory] and, for controller-runtime, [NewFunc]:
// see docs/library.md. They consist of a [pipeline.Pipeline] and two parts that can be used separately:
//
//   - A [Processor] is a sink that delivers the changes: each handler gets its events in order, at its
//     own pace, and a slow one never holds up the store or another.
//   - An [Indexer] is a cache.Indexer over a collection, which a [Codec] decodes.
//
// Invariants:
//
//   - Handlers get a list when it is complete, and only its differences.
//   - A handler that joins late gets each change once, in its initial list or after it. Its
//     backlog holds keys, not objects, until they are delivered.
package informer
