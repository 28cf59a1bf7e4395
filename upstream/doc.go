// Package upstream is the kube-apiserver side of a cache: configuration,
// discovery, the identity of the cluster, streaming lists, watches and the probe
// that comes before a watch is resumed.
//
// client-go's rest package does transport, TLS, credentials and their rotation,
// and HTTP/2 health checks. This package adds what a small device needs on top:
//
//   - [Source.List] parses a list item by item while it arrives. A collection is
//     never in memory as a whole.
//   - [Source.Watch] cuts objects out of event frames without decoding them.
//   - [Describe] and [Kind] turn what can go wrong into one line for the person
//     who runs the node, and into a class to decide on.
//
// Invariants:
//
//   - A list is complete or it is an error. A body that ends early, is no list or
//     is a list of something else never ends in success.
//   - The end of a watch says what it was: a channel that closes without an
//     ERROR event was closed by the server in good order (or by the caller). A
//     connection that broke is an ERROR event with [ReasonConnectionLost].
//   - Nothing is retried behind the caller's back, except the later pages of a
//     list where the server names the time to wait.
//   - An object that can't be used is reported and skipped; it ends neither a
//     list nor a watch.
//   - Input of any shape makes errors, not panics; what one item or event may
//     take is limited to 16 MiB.
package upstream
