// Package kubeapi serves stored collections as a Kubernetes API that is read only: get, list and
// watch of cached objects, with a kube-apiserver's paths, answers and resourceVersions, so that every
// program that reads from a kube-apiserver can read here.
//
// Invariants of every answer:
//
//   - It is whole or an error. A request that no collection covers is refused.
//   - Time does not go back. resourceVersions are the server's own; a watch delivers them in
//     ascending order, and a client that knows more than the cache waits or gets an error.
//   - An answer that may be stale has its age in a header, and a warning while the server can't be
//     reached.
//
// A watch continues from one of two tiers. [Events] holds the newest events of a collection in
// memory, each as it came. Before that, the store's history has the newest state of each object and
// each deletion, for clients that ask for bookmarks; the others get 410 and list again.
//
// No view of the store is open while a client is written to: a list is copied to a spool beside the
// writing, and a watch holds pointers to events that do not change.
package kubeapi
