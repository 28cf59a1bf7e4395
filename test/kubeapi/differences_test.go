package kubeapi

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// difference is a documented difference between the agent's API and a kube-apiserver's. Its
// what is in docs/kubernetes-api.md too.
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
		what: "Answers are JSON; a request that accepts only another encoding gets 406.",
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
		what: "Every write gets 405, whatever its body is.",
		why:  "The API is for reading.",
		ask:  withoutWrites,
	},
	{
		what: "Subresources that are not the object itself, such as `log`, `exec` and `scale`, get 405.",
		why:  "They are not cached.",
		adapt: func(q request, server, cached *answer) bool {
			return refused(q, server, cached, http.StatusMethodNotAllowed, isForeignSubresource(q.path))
		},
	},
	{
		what: "Resources and versions that are not cached get 404.",
		why:  "Clients find out at the first request, or by discovery, what they can have here.",
		adapt: func(q request, server, cached *answer) bool {
			if server.Status == http.StatusNotFound && isRefusal(cached, http.StatusNotFound) && isUncached(q.path) {
				*server = *cached // of an object, or of its resource
				return true
			}
			return refused(q, server, cached, http.StatusNotFound, isUncached(q.path))
		},
	},
	{
		what: "A list at exactly an older resourceVersion gets 410 if that state is not known any more.",
		why:  "The cache has what it saw; a kube-apiserver reads etcd's history.",
		adapt: func(q request, server, cached *answer) bool {
			exact := q.has("resourceVersionMatch", "Exact") || q.has("limit")
			return refused(q, server, cached, http.StatusGone, exact && isBeforeAgent(q))
		},
	},
	{
		what:  "Discovery has only cached resources with the verbs `get`, `list` and `watch`, and reviews of one's own rights; no `storageVersionHash`; and the address that the client used.",
		why:   "Clients see what they can have here.",
		adapt: adaptDiscovery,
	},
	{
		what: "Paths outside of the resources that are not listed here, such as `/`, `/livez/ping` and `/openapi/v2`, get 404; a kube-apiserver answers some of the others to verbs other than GET too.",
		why:  "No client of a cache needs them.",
		adapt: func(q request, server, cached *answer) bool {
			outside := strings.HasPrefix(q.path, "/openapi") || strings.Count(strings.Trim(q.path, "/"), "/") < 3 && groupVersionPath.MatchString(q.path)
			return refused(q, server, cached, http.StatusNotFound, outside && q.method == http.MethodGet) ||
				refused(q, server, cached, http.StatusMethodNotAllowed, outside && q.method != http.MethodGet)
		},
	},
	{
		what: "The version is sent whatever a client accepts, and the aggregated discovery document at `/apis/` too.",
		why:  "It is JSON in any case.",
		adapt: func(q request, server, cached *answer) bool {
			version := strings.HasPrefix(q.path, "/version") && server.Status == http.StatusNotAcceptable
			document := q.path == "/apis/" && slices.Contains(cached.Header["Content-Type"], acceptDiscovery)
			if !version && !document || cached.Status != http.StatusOK {
				return false
			}
			*server = *cached
			return true
		},
	},
	{
		what:  "The index of OpenAPI has only the cached groups, as JSON; a document's Vary names the encoding too.",
		why:   "The documents are kept compressed.",
		adapt: adaptOpenAPI,
	},
	{
		what:  "An unreadable or too new resourceVersion of events is refused as for any other resource: a kube-apiserver answers 400 in place of 500, without Retry-After.",
		why:   "A kube-apiserver has no watch cache for events, and etcd's errors are others.",
		adapt: adaptEvents,
	},
	{
		what: "A list of events at resourceVersion 0 ignores limit, as for any other resource.",
		why:  "As above.",
		ask: func(q request) request {
			if strings.Contains(q.path, "/events") && q.has("limit") && q.has("resourceVersion", "0", "00") && !q.has("continue") {
				values, _ := url.ParseQuery(q.query)
				values.Del("limit")
				q.query = values.Encode()
			}
			return q
		},
	},
	{
		what: "A watch for initial events at a resourceVersion newer than the cache ends with 504 after three seconds, even if timeoutSeconds is less.",
		why:  "The end of the time without an answer would help no client.",
		adapt: func(q request, server, cached *answer) bool {
			tooNew := len(cached.Body) == 1 && at(cached.Body[0], "type") == "ERROR" && at(cached.Body[0], "object", "code") == json.Number("504")
			if !tooNew || !cmp.Equal(server.Body, []any{""}) || server.Status != http.StatusOK || cached.Status != http.StatusOK {
				return false
			}
			*server = *cached
			return true
		},
	},
	{
		what: "A 405 for a custom resource is a built-in one's; a kube-apiserver answers OPTIONS with 404, and HEAD like GET.",
		why:  "A kube-apiserver's message lacks the verb.",
		adapt: func(q request, server, cached *answer) bool {
			return sameMessage(http.StatusMethodNotAllowed, "is not supported on resources of kind")(q, server, cached) ||
				refused(q, server, cached, http.StatusMethodNotAllowed, q.method == http.MethodOptions || q.method == http.MethodHead || q.method == "QUERY")
		},
	},
	{
		what: "A PartialObjectMetadata of a list, and a PartialObjectMetadataList of an object or in a watch, gets 406 at once, or another accepted form.",
		why:  "A kube-apiserver finds out when it has the object, after all other faults, and names the type in Go.",
		adapt: func(q request, server, cached *answer) bool {
			message, _ := at(server.Body[0], "message").(string)
			ended := q.has("watch") && strings.Contains(q.accept, "as=PartialObjectMetadataList") && cmp.Equal(server.Body, []any{""})
			late := ended || strings.HasPrefix(message, "you requested PartialObjectMetadata") || message == "content is not a list"
			if strings.Contains(q.accept, "as=PartialObjectMetadata") && late && cached.Status == http.StatusOK {
				*server = *cached
				return true
			}
			wrong := ended || server.Status >= http.StatusBadRequest
			return refused(q, server, cached, http.StatusNotAcceptable, wrong && strings.Contains(q.accept, "as=PartialObjectMetadata")) ||
				late && sameMessage(http.StatusNotAcceptable, "you requested PartialObjectMetadata")(q, server, cached)
		},
	},
	{
		what: "A 406 for a discovery document names the encodings if no JSON is accepted, else the media types.",
		why:  "In a kube-apiserver it depends on which of its servers has the document.",
		adapt: func(q request, server, cached *answer) bool {
			return groupVersionPath.MatchString(q.path) && sameMessage(http.StatusNotAcceptable, "media types are accepted")(q, server, cached)
		},
	},
	{
		what: "The parameter `pretty` of a media type in Accept has no effect; in the query it has.",
		why:  "No client sends it.",
		adapt: func(q request, server, cached *answer) bool {
			if !strings.Contains(q.accept, ";pretty=1") || server.Form != "pretty" {
				return false
			}
			server.Form = cached.Form
			return true
		},
	},
	{
		what:  "A bookmark has only kind, apiVersion and metadata.",
		why:   "A kube-apiserver adds the fields of its Go types that are not omitted if they are empty.",
		adapt: adaptBookmarks,
	},
	{
		what: "An empty PartialObjectMetadataList has `items: []`; a kube-apiserver's has null.",
		why:  "Clients take both, and a list is a list.",
		adapt: func(q request, server, cached *answer) bool {
			if len(server.Body) != 1 || at(server.Body[0], "kind") != "PartialObjectMetadataList" || at(server.Body[0], "items") != nil {
				return false
			}
			server.Body[0].(map[string]any)["items"] = []any{}
			return settle(q, server) == nil
		},
	},
	{
		what:  "A watch from before the first list of the agent ends with 410.",
		why:   "The agent has not seen those events.",
		adapt: adaptOldWatch,
	},
}

// withoutWrites returns q or, if it would change an object, a request that a kube-apiserver answers
// with 405.
func withoutWrites(q request) request {
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	ofResource := strings.Count(strings.Trim(q.path, "/"), "/") >= 2 && !strings.HasSuffix(q.path, "/nothing")
	for _, name := range []string{"configmaps", "secrets", "events", "endpointslices", "leases", "gadgets", "voids"} {
		if strings.HasSuffix(q.path, "/status") && strings.Contains(q.path, "/"+name+"/") {
			return q // there is no such subresource
		}
	}
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
	if !applies || server.Status == code || !isRefusal(cached, code) {
		return false
	}
	*server = *cached
	return true
}

// refusals are the reasons and messages of the agent's refusals; a message may go on.
var refusals = map[int]struct{ reason, message string }{
	http.StatusNotFound:         {"NotFound", "the server could not find the requested resource"},
	http.StatusMethodNotAllowed: {"MethodNotAllowed", "the server does not allow this method on the requested resource"},
	http.StatusNotAcceptable:    {"NotAcceptable", "only the following media types are accepted: "},
	http.StatusGone:             {"Expired", "The "},
}

// isRefusal reports whether an answer is an error with a code, in the form that it has to have.
func isRefusal(a *answer, code int) bool {
	text := code == http.StatusNotFound && cmp.Equal(a.Body, []any{"404 page not found\n"})
	header := map[string][]string{"Cache-Control": {"no-cache, private"}, "Content-Type": {"application/json"}}
	if text {
		header["Content-Type"], header["X-Content-Type-Options"] = []string{"text/plain; charset=utf-8"}, []string{"nosniff"}
	}
	if a.Status != code || len(a.Body) != 1 || !cmp.Equal(a.Header, header) {
		return false
	}
	if text || a.Body[0] == "" { // no body for HEAD
		return true
	}
	status, _ := a.Body[0].(map[string]any)
	message, _ := status["message"].(string)
	details := code != http.StatusNotFound && code != http.StatusMethodNotAllowed || status["details"] != nil
	return status["kind"] == "Status" && status["apiVersion"] == "v1" && status["reason"] == refusals[code].reason && details &&
		strings.HasPrefix(message, refusals[code].message) && (a.Form == "pretty" || a.Form == "compact, ends with a newline")
}

// isForeignSubresource reports whether a path ends with a subresource that is not the object.
func isForeignSubresource(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	return slices.Contains([]string{"log", "exec", "attach", "portforward", "proxy", "scale", "eviction", "binding"}, last)
}

// isUncached reports whether a path is that of a resource which the agent does not cache, or that of
// another version.
func isUncached(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	n := 2
	if parts[0] == "apis" {
		n = 3
	}
	if parts[0] != "api" && parts[0] != "apis" || len(parts) <= n {
		return false
	}
	prefix, name := "/"+strings.Join(parts[:n], "/"), parts[n]
	if len(parts) > n+2 && name == "namespaces" {
		name = parts[n+2]
	}
	return !slices.ContainsFunc(shared.resources, func(r *resource) bool { return r.prefix() == prefix && r.Resource == name })
}

// groupVersionPath matches paths that are not below a group and version.
var groupVersionPath = regexp.MustCompile(`^/(|api(/[^/]+)?|apis(/[^/]+){0,2}|[^/]*|livez/ping)/?$`)

// adaptOpenAPI makes the answers for OpenAPI documents equal if the agent's index is part of the
// kube-apiserver's.
func adaptOpenAPI(q request, server, cached *answer) bool {
	if !strings.HasPrefix(q.path, "/openapi/v3") || server.Status != http.StatusOK || cached.Status != http.StatusOK {
		return false
	}
	if q.path != "/openapi/v3" {
		if !slices.Equal(cached.Header["Vary"], []string{"Accept, Accept-Encoding"}) {
			return false
		}
		server.Header["Vary"] = cached.Header["Vary"]
		return true
	}
	var index struct{ Paths map[string]any }
	text, _ := server.Body[0].(string)
	if json.Unmarshal([]byte(text), &index) != nil {
		return false
	}
	mine, _ := at(cached.Body[0], "paths").(map[string]any)
	for path, document := range mine {
		if !cmp.Equal(index.Paths[path], document) {
			return false
		}
	}
	*server = *cached
	return len(mine) > 0
}

// adaptEvents makes errors about a resourceVersion of events equal.
func adaptEvents(q request, server, cached *answer) bool {
	if !strings.Contains(q.path, "/events") {
		return false
	}
	if server.Status == http.StatusBadRequest && cached.Status == http.StatusInternalServerError {
		*server = *cached
		return true
	}
	if server.Status != http.StatusGatewayTimeout || cached.Status != http.StatusGatewayTimeout || len(server.Header["Retry-After"]) > 0 {
		return false
	}
	delete(cached.Header, "Retry-After")
	if details, ok := at(cached.Body[0], "details").(map[string]any); ok {
		delete(details, "retryAfterSeconds")
	}
	return true
}

// sameMessage returns an adaption of answers with the same code, of which the kube-apiserver's has part
// of a message.
func sameMessage(code int, part string) func(q request, server, cached *answer) bool {
	return func(_ request, server, cached *answer) bool {
		if server.Status != code || cached.Status != code || len(server.Body) != 1 || len(cached.Body) != 1 {
			return false
		}
		message, _ := at(server.Body[0], "message").(string)
		if !strings.Contains(message, part) {
			return false
		}
		server.Body = cached.Body
		return true
	}
}

// adaptBookmarks removes from the kube-apiserver's bookmarks what is not in the agent's.
func adaptBookmarks(_ request, server, _ *answer) bool {
	found := false
	for _, document := range server.Body {
		object, _ := at(document, "object").(map[string]any)
		if at(document, "type") != "BOOKMARK" || object["kind"] == "Table" {
			continue
		}
		for name := range object {
			if name != "kind" && name != "apiVersion" && name != "metadata" {
				delete(object, name)
				found = true
			}
		}
	}
	return found
}

// isBeforeAgent reports whether a request is for a resourceVersion from before the agent's first list, of
// which it can't know the state.
func isBeforeAgent(q request) bool {
	return slices.ContainsFunc(shared.resources, func(r *resource) bool { return q.has("resourceVersion", r.before, "1") })
}

// adaptOldWatch makes the answers to a watch equal that ended with 410 since it was from before the
// agent.
func adaptOldWatch(q request, server, cached *answer) bool {
	if !isBeforeAgent(q) || server.Status != http.StatusOK || cached.Status != http.StatusOK || len(cached.Body) != 1 {
		return false
	}
	if at(cached.Body[0], "type") != "ERROR" || at(cached.Body[0], "object", "code") != json.Number("410") {
		return false
	}
	*server = *cached
	return true
}
