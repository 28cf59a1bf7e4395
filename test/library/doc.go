// Package library shows, on a real control plane, that programs made for client-go
// and controller-runtime work on the informer package, and what they gain.
//
// It is a module of its own, so that what it compares with does not come into the
// product's.
package library
