// Package reflector is the state machine that keeps a queue fed from a
// kube-apiserver: client-go's Reflector with one more way in. It can start from a
// checkpoint.
//
//	resume ──ok──► watch ──410, guards──► list ──► watch
//	   └── no checkpoint ──► list    └─ EOF, timeout, 429, 5xx, refused ─► wait ─► resume, same RV
//
// Before a checkpoint is used, and after every watch that ended before its time,
// two guards are asked: is it still the same cluster, and is the server at or
// past the checkpoint. The second matters because a watch from a resourceVersion
// of the future is accepted and then says nothing, for ever.
//
// A list has a reason, one of [store.Reasons]. No error of the network and no
// refusal makes one while the resourceVersion is still good, and none deletes
// anything: only an event or a completed list does.
package reflector
