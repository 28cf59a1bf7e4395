// Package clustercheck measures a kube-apiserver as an agent would use it: how far back a watch resumes,
// whether bookmarks arrive, the cost of a restart.
//
// It only gets, lists and watches. A measurement that fails is part of the report, as a problem of its
// collection, and does not end the others. Every request has a limit of time, so that a server that hangs
// costs a measurement and not the report.
package clustercheck
