// Package upstream is the kube-apiserver side of a cache: configuration, discovery, the identity of
// the cluster, streaming lists, watches, and the probe that precedes the resume of a watch.
//
// client-go's rest package handles transport, TLS, credentials and their rotation, and HTTP/2
// health checks. This package adds, for small devices:
//
//   - [Source.List] parses a list item by item while it arrives. A collection is
//     never in memory as a whole.
//   - [Source.Watch] cuts objects out of event frames without decoding them.
//   - [Describe] and [Classify] turn an error into one line for the operator of the
//     node, and into a class to decide on.
//
// Invariants:
//
//   - A list is complete or it is an error. If a body ends early, is not a list or
//     is a list of something else, List fails.
//   - The end of a watch has a cause: if a channel closes without an ERROR event,
//     the server closed the stream normally (or the caller did). If the connection
//     broke, there is an ERROR event with [ReasonConnectionLost].
//   - Nothing is retried behind the caller's back, except the later pages of a
//     list if the server names the time to wait.
//   - An object that can't be used is reported and skipped. It ends neither a
//     list nor a watch.
//   - Input of any shape causes errors, not panics. One item or event takes at most
//     16 MiB.
package upstream
