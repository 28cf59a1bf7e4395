// Package storetest is the suite that every store passes, so that code written against package
// store behaves the same on all of them.
//
// [Run] has a test for each documented rule of package store, and a property test that runs random
// batches, replacements, scope changes, index changes, drops and reopenings against [Model], a
// plain map that holds the expected content of a view. The other exported functions are for a
// store's own tests: after a crash, [Model.Diff] compares a reopened store's view with the models
// of the states it may be in.
//
// The suite waits for events, never for time, and leaves views open while it writes: if a test
// hangs, a writer of the store waits for a reader.
package storetest
