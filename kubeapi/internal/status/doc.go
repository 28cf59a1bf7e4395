// Package status answers requests that fail with a Status, as a kube-apiserver does.
package status
