// Package localapi answers queries about the cache: its collections, how fresh they are, their
// indexes, and the objects.
//
// [Source] defines the queries. They are answered from a database ([FromDB], for the agent and for
// a file without an agent) or by a running agent over its unix socket ([Client]). The agent serves
// a [Handler] there, which puts a Source behind HTTP. Both kinds of Source give the same answers,
// except for their age.
//
// Every answer has these properties:
//
//   - It is one consistent state of a collection. Objects are first copied out of the
//     store, to memory or beyond a budget to an unlinked file, so that no transaction
//     stays open for a slow client.
//   - For a collection that was never synced it is an error ([ErrNotSynced], HTTP 503),
//     never an empty result.
//   - An answer that could not be completed ends in an error.
//
// The JSON of the types here is a contract: fields are added, not changed.
package localapi
