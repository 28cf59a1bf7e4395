// Package bolt is the durable store: one bbolt file for all collections.
//
// What is in the file:
//
//	meta                       magic, format version, time of creation, writer
//	dict/<id>                  compression dictionaries
//	c/<collection>/info        what the collection is a copy of (store.Info)
//	              /state       checkpoint, synced, counts
//	              /gen         number of the generation that readers see
//	              /dict        id of the dictionary new records are compressed with
//	              /g<n>/indexes         names and definitions of the indexes
//	                   /objects         key → record
//	                   /index/<name>    value 0x00 key → nothing
//
// What holds at any moment, and so after a crash at any line:
//
//   - Objects, index entries, totals and checkpoint change in one transaction.
//   - Readers see one generation. A replacement that does not fit in memory fills
//     the next generation beside it, and one small transaction switches
//     generation and checkpoint together. Generations that are not current are
//     leftovers of a crash and are deleted on opening.
//   - Every record carries a CRC-32C over its key and all its bytes, checked on
//     every read. A record that fails is reported, never served.
//
// There is no setting that trades durability for speed: no NoSync, ever.
package bolt
