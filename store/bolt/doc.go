// Package bolt is the durable store: one bbolt file for all collections.
//
// The file has:
//
//	meta                       magic, format version, time of creation, writer
//	                           with each rewrite of the buckets: epoch
//	                           if it was restored from a snapshot: origin
//	                           while a fold is half done: folding
//	journal/<sequence>         one flush: its changes and checkpoints
//	dict/<id>                  compression dictionaries
//	c/<collection>/info        the source of the collection (store.Info)
//	              /state       checkpoint, synced, counts
//	              /gen         number of the generation that readers see
//	              /dict        ids of its dictionaries; the last is for new records
//	              /g<n>/indexes         names and definitions of the indexes
//	                   /building        indexes that are not complete, and how far they are
//	                   /objects         key → record
//	                   /index/<name>    value 0x00 key → nothing
//	                   /history         where the history begins, and how large it is
//	                   /feed            resourceVersion → the key's newest change, or a deletion
//	                   /tombs           resourceVersion → last record of a deleted object
//	                   /dropped         only of other versions: dropped indexes, deleted by the next Open
//
// A batch goes into a memtable, which readers see at once. A flush makes it durable, as one value in
// the journal, and a fold moves it into the buckets; package writeback has both, with the reason.
// [Options.FlushInterval] says when a flush happens. A fold happens at 24 MiB of journal, 90,000 cells
// or a day, before any transaction that changes the buckets directly (making, changing and dropping a
// collection, the commit of a replacement), and on Close.
//
// The invariants hold at any moment, and so after a crash at any line:
//
//   - Objects, index entries, totals and checkpoint of a batch become visible
//     together and durable together.
//   - File and journal together are one state that existed, at the newest flush. If a journal
//     entry is corrupt, it and the entries after it are lost, and the state before it remains.
//   - A fold may end between any two of its slices. The journal is complete until the last
//     one, and putting the same cells on the file again changes nothing, so file and journal
//     are the same state as before, and the next fold starts again from the beginning. If
//     the journal turns out to be corrupt then, the mark in meta makes the open fail: the
//     buckets by themselves are no state that existed.
//   - A view is a read transaction under the memtable of the same moment. Every rewrite of
//     the buckets increments the epoch; if it differs, the two do not belong together. A fold
//     in progress does not matter: putting the same cells on the file again changes nothing.
//   - Readers see one generation. If a replacement does not fit in memory, it fills the next
//     generation beside the current one, and one small transaction switches generation and
//     checkpoint together. Generations that are not current are leftovers of a crash and are
//     deleted on opening.
//   - If an index is added to stored objects, it is built in the background, in steps of one
//     transaction each. Writers maintain it from the first moment on; readers see it when it
//     is complete. See build.
//   - Every record carries a CRC-32C over its key and all its bytes, checked on every read. If
//     the check fails, the record is reported and never served. The small values of a
//     collection (info, state, gen, dict, indexes) have a checksum too: if one of them fails,
//     the whole collection is corrupt, and the other collections are not.
//
// With [Options.Keys] the values of a file are encrypted, by package boltfile. Keys, and with them
// names and index values, are in clear. The memtable and the layers above see everything in clear.
//
// docs/internals-store.md has the layers, types, locks and goroutines. No setting trades durability
// for speed. The one file that is not synced is a copy (see [DB.Backup]): it has no name, so no one can
// find it after a crash.
package bolt
