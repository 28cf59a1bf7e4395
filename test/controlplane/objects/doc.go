// Package objects makes realistic Kubernetes objects, stores many of them in a control plane quickly,
// and keeps changing them.
//
// Every object is derived from its namespace, an integer and a seed alone: the same call returns the
// same names, UIDs, addresses, images and times in any process. Objects of different calls differ in
// all of these, so that they compress no better than a real cluster's.
//
// The objects are a chain of shops: one namespace a shop, a dozen applications in each, and one or two
// nodes.
package objects
