// Package storetest is the suite that every store passes, so that code written
// against package store behaves the same on all of them.
//
// [Run] has a test for each rule that package store documents, and a property
// test that drives random batches, replacements, scope changes, index changes,
// drops and reopenings against [Model], the plain map that says what a view must
// show. What else is exported is for a store's own tests: after a crash, compare
// a reopened store's view with the models of the states it may be in, by
// [Model.Diff].
//
// The suite waits for events, never for time, and expects a store to work with
// views left open while it is written: a test that hangs has found a writer that
// waits for a reader.
package storetest
