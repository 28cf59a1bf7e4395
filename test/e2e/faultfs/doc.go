// Package faultfs is a disk for tests: an in-memory file system, mounted with FUSE, that has the
// faults of real disks on demand.
//
// It holds back unsynced writes. After a power cut, each 4 KiB page that was written since the
// last fsync of its file has any of its versions, or a torn mixture of two; of the names created,
// removed and renamed since the last fsync of their directory, any subset is there. A lying disk
// reports success for a sync that it did not do. [Faults] selects the operations that fail, and
// limits the space.
//
// A separate process serves the file system; it runs the test's binary, see [Serve]. A process that
// maps a file which it serves itself would deadlock in a page fault. The process unmounts and exits
// when the test's process does, however that one ends.
//
// Mounting needs Linux, /dev/fuse and root; without them [New] skips the test and reports why.
package faultfs
