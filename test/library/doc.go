// Package library tests, on a real control plane, that programs made for client-go and
// controller-runtime work on the informer package, and measures their gains.
//
// It is a module of its own, so that its dependencies are not the product's.
package library
