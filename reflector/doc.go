// Package reflector is the state machine that fills a queue from a kube-apiserver. It works
// like client-go's Reflector, and can also start from a checkpoint.
//
//	resume ──ok──► watch ──410, guards──► list ──► watch
//	   └── no checkpoint ──► list    └─ EOF, timeout, 429, 5xx, refused ─► wait ─► resume, same RV
//
// Before a checkpoint is used, and after every watch that ended early, two guards check that the
// cluster is still the same, and that the server is at or past the checkpoint. The second matters
// because a server accepts a watch from a future resourceVersion and then sends nothing, for ever.
//
// A list has a reason, one of [store.Reasons]. No network error and no refusal makes a list while
// the resourceVersion is still valid. No error deletes anything: only an event or a completed list
// does.
package reflector
