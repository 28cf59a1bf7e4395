// Package bolt is the durable store: one bbolt file for all collections.
//
// What is in the file:
//
//	meta                       magic, format version, time of creation, writer
//	                           with each rewrite of the buckets: epoch
//	                           where it came from a snapshot: origin
//	                           while a fold is half done: folding
//	journal/<sequence>         one flush: its changes and checkpoints
//	dict/<id>                  compression dictionaries
//	c/<collection>/info        what the collection is a copy of (store.Info)
//	              /state       checkpoint, synced, counts
//	              /gen         number of the generation that readers see
//	              /dict        ids of its dictionaries; the last is for new records
//	              /g<n>/indexes         names and definitions of the indexes
//	                   /building        those that are not complete, and how far they are
//	                   /objects         key → record
//	                   /index/<name>    value 0x00 key → nothing
//	                   /history         where the history begins, and how large it is
//	                   /feed            resourceVersion → the key's newest change, or a deletion
//	                   /tombs           resourceVersion → last record of what was deleted
//	                   /dropped         indexes that are not wanted any more
//
// What is applied goes into a memtable: one ordered overlay over all buckets,
// visible to readers at once. A flush makes it durable: what changed since the
// flush before becomes one value in the journal, for all collections together, in
// one small transaction. A fold moves the memtable into the buckets in key order, in
// slices of about 1 MiB of pages, a transaction each, of which the last drops the
// journal. Opening puts the journal back into the memtable. The reason is flash: a page is rewritten for each random object
// that is touched, while an append costs about as much for many as for one.
//
// A flush happens when the flush interval has passed since the oldest change that
// is not durable and 256 KiB wait, when twelve intervals have passed (but for changes at
// most 60 s, unless the interval is longer), at 1 MiB, when [DB.Flush] is called,
// and on Close. A fold happens at 24 MiB of journal, 90,000 cells or a day, before
// anything that changes buckets by itself (making, changing and dropping a collection,
// the commit of a replacement), and on Close.
//
// What holds at any moment, and so after a crash at any line:
//
//   - Objects, index entries, totals and checkpoint of a batch become visible
//     together and durable together.
//   - File and journal together are one state that there was: that of the newest
//     flush. A damaged journal entry costs itself and what follows, and leaves the
//     state before it.
//   - A fold may end between any two of its slices. The journal is whole until the last
//     one, and putting the same cells on the file again changes nothing, so file and
//     journal say what they said before; the next fold begins anew. The mark in meta
//     is for a journal that turns out to be damaged then: the buckets by themselves are
//     no state that there was, and the file is not used.
//   - A view is a read transaction under the memtable of the same moment. The epoch,
//     which every rewrite of the buckets moves on, tells whether the two belong
//     together; a fold that is just going on does not matter, for the same reason.
//   - Readers see one generation. A replacement that does not fit in memory fills
//     the next generation beside it, and one small transaction switches
//     generation and checkpoint together. Generations that are not current are
//     leftovers of a crash and are deleted on opening.
//   - An index that is added to objects is built in the background, in steps of one
//     transaction each. Writers keep it from the first moment on; readers see it once
//     it is complete. See build.
//   - Every record carries a CRC-32C over its key and all its bytes, checked on
//     every read. A record that fails is reported, never served. So do the small
//     values that a collection hangs on (info, state, gen, dict, indexes); where one
//     of them fails the whole collection is damaged, and the others are not.
//
// Space that is free in the file is used again; where most of it is free, the
// database rewrites itself beside the file and exchanges the two, after a fold and
// at most once a day. See [DB.Compact].
//
// With [Options.Keys] a file is encrypted, by package boltfile: see its fileCipher for how,
// and its Bucket for what of it. Nothing above knows. The memtable is in clear.
//
// The layers are packages: internal/format has the bytes, internal/boltfile one bbolt file,
// internal/writeback memtable, journal and fold; this package has the collections. See
// docs/internals-store.md for types, locks and goroutines.
//
// There is no setting that trades durability for speed: no NoSync, ever. The one file
// that is not synced is a copy (see [DB.Backup]), which has no name to be found by after
// a crash.
package bolt
