// Package localapi answers questions about what is cached: what there is, how
// fresh it is, by index, and the objects themselves.
//
// [Source] is the questions. They are answered from a database ([FromDB], for the
// agent and for a file without an agent) and from a running agent over its unix
// socket ([Client]); the [Handler] that the agent serves there puts a Source
// behind HTTP. A caller can't tell them apart but for how fresh they are.
//
// What holds for every answer:
//
//   - It is one consistent state of a collection. Objects are copied out of the
//     store first, to memory or past a budget to an unlinked file, so that no
//     transaction stays open at the pace of whoever reads the answer.
//   - A collection that was never synced is an error ([ErrNotSynced], HTTP 503),
//     never an empty answer.
//   - An answer that could not be completed ends in an error, never early.
//
// The JSON of the types here is a contract: fields are added, not changed.
package localapi
