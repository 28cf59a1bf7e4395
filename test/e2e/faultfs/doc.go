// Package faultfs is a disk for tests: a file system in memory, mounted with FUSE, that
// has the faults of real disks on demand.
//
// It keeps back what was not synced. A power cut leaves, of each 4 KiB page that was
// written since the newest fsync of its file, any of the versions that it had, or a torn
// mixture of two; and of the names that were made, removed and renamed since the newest
// fsync of their directory any subset. A disk that lies says that it synced and did not.
// Space ends, and reads, writes and syncs fail, where [Faults] say so.
//
// The file system is served by a process of its own, which is the test's binary once
// more: see [Serve]. A process that maps a file which it serves itself would wait for
// itself in a page fault. The process unmounts and ends when the test's does, however that
// ends.
//
// Mounting needs Linux, /dev/fuse and root; elsewhere [New] skips the test and says why.
package faultfs
