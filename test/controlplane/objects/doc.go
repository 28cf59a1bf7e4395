// Package objects makes realistic Kubernetes objects, puts many of them into a
// control plane quickly, and keeps changing them.
//
// Every object is derived from its namespace, an integer and a seed alone: the
// same call gives the same names, UIDs, addresses, images and times, in any
// process. Two different calls give objects that differ in all of them, so that
// nothing compresses better than it would in a real cluster.
//
// The story behind them is a chain of shops: one namespace a shop, a dozen
// applications in each, one node or two under the counter.
package objects
