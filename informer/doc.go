// Package informer is the loop that takes batches from the queue into the store
// and tells the handlers.
//
// For each batch a [Loop] works out what was there before, hands changes and
// watermark to the store as one unit, and only then tells the handlers, through a
// [Processor] with the semantics of client-go's: each handler gets its events in
// order, at its own pace, and a slow one never holds up the store or another.
//
// What it keeps true:
//
//   - The checkpoint that is stored is the batch's watermark, never an object's
//     resourceVersion.
//   - Nothing goes back in time: an event that is older than what is stored (a
//     resumed watch replays some) changes nothing and reaches nobody.
//   - Handlers hear of a list when it is complete, and only of what it changed.
//   - A store that fails is tried again; the batch is kept, the queue fills, and
//     the network waits.
package informer
