// Package deltafifo is the queue between a reflector and the store: deltas per
// key, in the order in which keys first changed, with a watermark.
//
// Each delta carries its position in the order of arrival. A [Batch] is a contiguous
// part of that order, so a consumer that sorts the deltas of each batch by position has
// the stream as the server sent it.
//
// Its deltas are client-go's ([cache.Delta]): consecutive deletes of a key merge,
// and an object that a list finds missing is deleted with a
// [cache.DeletedFinalStateUnknown].
//
// The watermark is what makes a durable consumer correct. Deltas of one key are
// taken together, so with the events A@10, B@11, A@12 the queue may hand out A
// with both of its deltas first. Whoever then persists 12 and crashes has lost
// B@11 for good. So each key remembers the resourceVersion that was current when
// it was first queued, and a [Batch] carries the resourceVersion below which
// nothing is pending any more. Only that may be persisted, never an object's own.
//
// A list goes through the queue as a stream: BeginReplace, ReplaceItem for each
// item, EndReplace. Items that the consumer has already (same UID and
// resourceVersion) produce nothing, so a relist costs the keys in memory and the
// differences in work.
//
// A [Queue] is a [cache.Queue] too: whoever takes one of client-go's queues can be
// given this one, and gets what client-go's DeltaFIFO would give.
//
// The queue has a budget in bytes. Past it the producer waits, stops reading
// from the network, and TCP pushes back.
package deltafifo
