// Package table prints objects as rows of a Table, with the columns of a kube-apiserver.
//
// Columns and rows of built-in kinds are those of kube-apiserver v1.36, which TestRecordedTables of
// test/e2e records: -args -tables.record writes columns.json and testdata. A kind has a type here with
// the fields that its row shows, so that the other fields are not decoded, and the packages of
// k8s.io/api, which are large, are not linked.
package table
