// Package table prints objects as rows of a Table, with the columns of a kube-apiserver.
package table
