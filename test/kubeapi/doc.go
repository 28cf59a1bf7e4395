// Package kubeapi compares the Kubernetes API of an agent with the API of the kube-apiserver it caches.
//
// One control plane and one agent run. A fixed seed generates some hundred requests, good and bad, for
// every cached resource; each is sent to both, and the answers must be equal in status, headers and
// content, except for the documented differences, which are a table in differences_test.go. A
// difference that no request shows is an error too.
//
// The comparison itself is tested: the kube-apiserver compared with itself shows no difference, and
// an answer that was tampered with is noticed.
package kubeapi
