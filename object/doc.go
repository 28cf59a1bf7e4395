// Package object holds Kubernetes objects as the JSON the server sent.
//
// An [Object] is immutable: raw JSON plus the few metadata fields that a cache
// needs (kind, namespace, name, UID, resourceVersion, labels), parsed once.
// Nothing here builds map[string]any trees; decoding into Go types happens on
// demand, in [Object.Into] and [Object.Unstructured], and makes private copies.
//
// The package also holds two rules for all other packages: how keys are formed ([Key]) and how
// resourceVersions compare ([CompareRV]).
package object
