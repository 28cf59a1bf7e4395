package kubeapi

import (
	"net/http"
	"slices"
	"strings"
)

// difference is a documented difference between the agent's API and a kube-apiserver's.
type difference struct {
	what string
	why  string

	// ask returns the request that the kube-apiserver is sent in place of one to which the
	// difference applies, or q itself.
	ask func(q request) request

	// adapt removes the difference from two answers and reports whether it was there.
	adapt func(q request, server, cached *answer) bool
}

var differences = []difference{}

// withoutWrites returns q or, if it would change an object, a request that a kube-apiserver answers
// with 405.
func withoutWrites(q request) request {
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	ofResource := strings.Count(strings.Trim(q.path, "/"), "/") >= 2 && !strings.HasSuffix(q.path, "/nothing")
	if slices.Contains(writes, q.method) && ofResource {
		q.method, q.path = http.MethodPut, "/api/v1/pods"
	}
	return q
}
