// Package writeback holds changes from the moment that readers see them until they are in the
// buckets of the file.
//
//	Put ──▶ memtable ──Flush──▶ journal ──Fold──▶ buckets
//
// A Put is visible at once. A Flush makes everything that was put durable, as one value in the
// journal. A Fold moves the memtable into the buckets in key order and drops the journal. Replay
// puts the journal back into the memtable when a file is opened. The reason is flash: a page is
// rewritten for each random object that is touched, while an append costs about as much for many
// objects as for one.
//
// The memtable holds addresses and bytes only, see format.Address. Readers pair an [Overlay] of it
// with a transaction on the file. The two fit together if their epochs match: every rewrite of the
// buckets increments the epoch.
package writeback
