// Package forward sends the requests that a cache does not answer to the cluster's kube-apiserver: writes,
// exec and log, resources that are not cached.
//
// Invariants:
//
//   - A request has the credentials of its caller, or is refused: the bearer token as it came, or, for a
//     caller with a client certificate, one that is configured, if its subject is the caller's. The
//     kubelet to which the agent has issued a certificate may have a token that is configured, if the
//     server names the kubelet as its user. The agent's own are never used, and a caller that this machine lets in, who has none, is not taken.
//   - Path, query, headers and body reach the server as they came, and so does the answer. Only
//     headers in which a proxy vouches for its client are removed.
//   - Nothing is held whole: bodies are copied as they come, and each part of an answer is flushed.
//   - An answer that the server does not finish is cut, so that no client takes a part for the whole.
//   - A client that does not go on with its body, or with reading its answer, is cut. A stream on which
//     nothing happens is not, but the number of requests, and of connections that have changed their
//     protocol, is limited, so that no user takes the places of others.
package forward
