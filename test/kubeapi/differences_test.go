package kubeapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// difference is a documented difference between the agent's API and a kube-apiserver's. The two
// texts are in docs/kubernetes-api.md too.
type difference struct {
	what string
	why  string

	// ask returns the request that the kube-apiserver is sent in place of q; nil for q itself.
	ask func(q request) request

	// adapt removes the difference from two answers and reports whether it was there; nil if
	// nothing is left of it.
	adapt func(q request, server, cached *answer) bool
}

var differences = []difference{
	{
		what: "Answers are JSON. A request that accepts only another encoding gets 406.",
		why:  "Objects are stored as JSON, and every known client accepts it.",
		ask:  onlyJSON, adapt: adaptMediaTypes,
	},
	{
		what: "`Accept: application/*` means JSON; a kube-apiserver answers 406.",
		why:  "It can be answered.",
		ask: func(q request) request {
			q.accept = strings.ReplaceAll(q.accept, "application/*", "application/json")
			return q
		},
	},
	{
		what: "Every write is answered with 405, whatever its body is.",
		why:  "The API is for reading.",
		ask:  withoutWrites,
	},
	{
		what: "Subresources that are not the object itself, such as `log`, `exec` and `scale`, are answered with 405.",
		why:  "They are not cached.",
		adapt: func(q request, server, cached *answer) bool {
			return refused(q, server, cached, http.StatusMethodNotAllowed, isForeignSubresource(q.path))
		},
	},
	{
		what: "Resources and versions that are not cached are answered with 404, as if the cluster did not have them.",
		why:  "Clients find out at the first request, or by discovery, what they can have here.",
		adapt: func(q request, server, cached *answer) bool {
			return refused(q, server, cached, http.StatusNotFound, isUncached(q.path))
		},
	},
	{
		what: "A list at exactly an older resourceVersion is answered with 410 if the state of that time is not known any more.",
		why:  "The cache has what it saw; a kube-apiserver reads etcd's history.",
		adapt: func(q request, server, cached *answer) bool {
			old := q.has("resourceVersionMatch", "Exact") || q.has("limit") || q.has("continue")
			return refused(q, server, cached, http.StatusGone, old)
		},
	},
	{
		what:  "A watch from a resourceVersion before the first list of the agent ends with 410.",
		why:   "The agent has not seen those events.",
		adapt: adaptOldWatch,
	},
}

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

// onlyJSON removes from q the encodings that the agent does not have.
func onlyJSON(q request) request {
	var left []string
	for clause := range strings.SplitSeq(q.accept, ",") {
		media, _, _ := strings.Cut(strings.TrimSpace(clause), ";")
		if media != acceptProtobuf && media != "application/yaml" && media != "application/cbor" {
			left = append(left, clause)
		}
	}
	if q.accept != "" && left == nil {
		left = []string{"text/html"}
	}
	q.accept = strings.Join(left, ",")
	return q
}

// adaptMediaTypes removes the list of encodings from the messages of a 406.
func adaptMediaTypes(_ request, server, cached *answer) bool {
	if server.Status != http.StatusNotAcceptable || cached.Status != http.StatusNotAcceptable {
		return false
	}
	for _, a := range []*answer{server, cached} {
		for _, document := range a.Body {
			status, _ := document.(map[string]any)
			message, _ := status["message"].(string)
			for _, before := range []string{"Available representations: ", "media types are accepted: "} {
				if text, _, ok := strings.Cut(message, before); ok {
					status["message"] = text + before
				}
			}
		}
	}
	return true
}

// refused makes the answers equal if a request to which the difference applies got the expected code
// from the agent, with a Status or a text that has it, and another one from the kube-apiserver.
func refused(_ request, server, cached *answer, code int, applies bool) bool {
	if !applies || cached.Status != code || server.Status == code || len(cached.Body) != 1 {
		return false
	}
	if status, ok := cached.Body[0].(map[string]any); ok && (status["kind"] != "Status" || status["message"] == "") {
		return false
	}
	*server = *cached
	return true
}

// isForeignSubresource reports whether a path ends with a subresource that is not the object.
func isForeignSubresource(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	return slices.Contains([]string{"log", "exec", "attach", "portforward", "proxy", "scale", "eviction", "binding"}, last)
}

// isUncached reports whether a path is that of a resource in a form which the agent does not cache.
func isUncached(path string) bool {
	for _, r := range shared.resources {
		if path == r.prefix() || strings.HasPrefix(path, r.prefix()+"/") && slices.Contains(strings.Split(path, "/"), r.Resource) {
			return false
		}
	}
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
}

// adaptOldWatch makes the answers to a watch equal that ended with 410 since it was from before the
// agent.
func adaptOldWatch(q request, server, cached *answer) bool {
	old := slices.ContainsFunc(shared.resources, func(r *resource) bool { return q.has("resourceVersion", r.before, "1") })
	if !old || server.Status != http.StatusOK || cached.Status != http.StatusOK || len(cached.Body) != 1 {
		return false
	}
	if at(cached.Body[0], "type") != "ERROR" || at(cached.Body[0], "object", "code") != json.Number("410") {
		return false
	}
	*server = *cached
	return true
}
