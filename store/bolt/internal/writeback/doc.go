// Package writeback holds what was applied between the moment that readers see it and the
// moment that it is in the buckets of the file.
//
//	Put ──▶ memtable ──Flush──▶ journal ──Fold──▶ buckets
//
// A Put is visible at once. A Flush makes everything that was put durable, as one value in
// the journal. A Fold moves the memtable into the buckets in key order and drops the
// journal. Replay puts the journal back into the memtable when a file is opened. The reason
// is flash: a page is rewritten for each random object that is touched, while an append
// costs about as much for many as for one.
//
// The memtable knows addresses and bytes only, see format.Address. Readers pair an
// [Overlay] of it with a transaction on the file, which must fit: the epoch, which every
// rewrite of the buckets increments, tells.
package writeback
