// Package deltafifo is the queue between a reflector and the store: deltas per
// key, in the order in which keys first changed, with a watermark.
//
// Each delta carries its position in the order of arrival. A [Batch] is a contiguous part of that
// order, so a consumer that sorts its deltas by position has the stream as the server sent it.
//
// Its deltas are the same as in client-go's DeltaFIFO, which a [DeltaFIFO] can replace: consecutive deletes
// of a key merge, and an object that a list finds missing is deleted with a [cache.DeletedFinalStateUnknown].
//
// The watermark keeps a durable consumer correct. Deltas of one key are taken together, so with the
// events A@10, B@11, A@12 the queue may return both deltas of A first. A consumer that then
// persists 12 and crashes has lost B@11 for good. So each key holds the resourceVersion that was
// current when the key was first queued, and a [Batch] carries the watermark, the resourceVersion
// up to which nothing is pending. A consumer may persist only the watermark, never an object's
// resourceVersion.
//
// A list goes through the queue as a stream: BeginReplace, ReplaceItem for each item, EndReplace.
// Items that the consumer has already (same UID and resourceVersion) produce no delta, so a relist
// costs work for the differences. A list in the order of its keys needs no memory for them.
//
// The queue has a budget in bytes. When it is used up, the producer blocks and stops reading from
// the network, so that TCP pushes back.
package deltafifo
