// Package selector parses the label and field selectors of requests, with the fields and the error
// texts of a kube-apiserver, and matches objects by their attributes.
//
// Invariants:
//
//   - Selectors see exactly the fields that a kube-apiserver has for the resource. A field that the
//     cache can't know, because it is dropped before storing, is an error, never an empty value.
//   - [Selector.Within] is true only if it is proven.
//   - [Attributes.Values] are part of durable files: their form may only change together with the
//     files' format.
package selector
