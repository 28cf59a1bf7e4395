// Package table prints objects as rows of a Table, with the columns of a kube-apiserver.
//
// Columns and rows of built-in kinds are those of kube-apiserver v1.36, which TestRecordedTables of
// test/e2e records: -args -tables.record writes columns.json and testdata. A cell is found in the object's
// JSON by its path: nothing else is decoded, and the packages of k8s.io/api, which are large, are not
// linked. A value of a type that a server does not send is printed as it is.
package table
