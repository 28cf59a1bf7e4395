package kubeapi

import (
	"net/http"
	"strings"
)

// paths returns requests for what does not exist, or is not where it is looked for.
func (g *generator) paths() []request {
	var all []request
	for _, path := range []string{
		"/api/v1/nothings", "/api/v1/nothings/x", "/api/v1/namespaces/ns/nothings", "/api/v1/namespaces/ns/nothings/x", "/api/v2/pods", "/api/v2",
		"/apis/apps/v1/nothings", "/apis/apps/v1/namespaces/ns/nothings/x", "/apis/apps/v2/deployments", "/apis/apps/v2", "/apis/none.example.com",
		"/apis/none.example.com/v1", "/apis/none.example.com/v1/things", "/apis/lab.example.com/v1/nothings", "/apis/lab.example.com/v1/namespaces/ns/nothings/x",
		"/apis/lab.example.com/v2/widgets", "/apis/lab.example.com/v2", "/nothing", "/nothing/x/y", "/apis/v1/pods", "/api/pods", "/apis/apps/v1beta1/deployments",
		// The wrong scope.
		"/api/v1/namespaces/ns/nodes", "/api/v1/namespaces/ns/nodes/edge-1", "/api/v1/pods/web-0", "/api/v1/configmaps/a", "/apis/apps/v1/deployments/web",
		"/apis/lab.example.com/v1/widgets/full", "/apis/lab.example.com/v1/namespaces/ns/gadgets", "/apis/lab.example.com/v1/namespaces/ns/gadgets/second",
		"/api/v1/namespaces/ns/namespaces", "/api/v1/namespaces/ns/namespaces/ns",
		// The group of another resource, and other spellings.
		"/api/v1/deployments", "/apis/apps/v1/pods", "/api/v1/Pods", "/api/v1/pod", "/API/v1/pods", "/apis/lab.example.com/v1/widget", "/apis/lab.example.com/v1/wd",
		"/api/v1//pods", "/api/v1/namespaces//pods", "/api/v1/namespaces/ns/pods//", "/api/v1/./pods",
		"/api/v1/namespaces/ns/pods/web-0/status/x", "/api/v1/namespaces/ns/pods/web-0/x/y/z", "/api/v1/namespaces/ns%2Fpods", "/api/v1/namespaces/ns/pods/a%2Fb",
		"/api/v1/namespaces/ns/pods/%2e%2e", "/api/v1/namespaces/ns/pods/a%00b", "/api/v1/namespaces/NS/pods", "/api/v1/namespaces/n%20s/pods",
		// Subresources, with the whole object or not.
		"/api/v1/namespaces/ns/pods/web-0/status", "/api/v1/namespaces/ns/pods/web-0/resize", "/api/v1/namespaces/ns/pods/web-0/ephemeralcontainers",
		"/api/v1/namespaces/ns/pods/missing/resize", "/api/v1/namespaces/ns/status", "/api/v1/namespaces/ns/finalize", "/api/v1/nodes/edge-1/status",
		"/api/v1/namespaces/ns/services/web/status", "/apis/apps/v1/namespaces/ns/deployments/web/status", "/apis/batch/v1/namespaces/ns/jobs/once/status",
		"/apis/lab.example.com/v1/namespaces/ns/widgets/full/status", "/apis/lab.example.com/v1/gadgets/second/status", "/api/v1/namespaces/ns/configmaps/a/status",
		"/apis/lab.example.com/v1/namespaces/ns/widgets/missing/status", "/apis/lab.example.com/v1/namespaces/ns/widgets/full/scale",
		"/apis/lab.example.com/v1/namespaces/ns/widgets/full/nothing", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader/status",
		"/apis/apps/v1/namespaces/ns/deployments/web/scale", "/api/v1/namespaces/ns/pods/web-0/log", "/api/v1/namespaces/ns/pods/web-0/exec",
		"/api/v1/namespaces/ns/pods/web-0/attach", "/api/v1/namespaces/ns/pods/web-0/portforward", "/api/v1/namespaces/ns/pods/web-0/proxy",
		"/api/v1/namespaces/ns/pods/web-0/eviction", "/api/v1/namespaces/ns/pods/web-0/binding", "/api/v1/namespaces/ns/services/web/proxy",
		// What the agent does not cache.
		"/api/v1/persistentvolumes", "/api/v1/namespaces/ns/endpoints", "/api/v1/namespaces/ns/serviceaccounts/default", "/apis/batch/v1/cronjobs",
		"/apis/apps/v1/statefulsets", "/apis/networking.k8s.io/v1/ingresses", "/apis/lab.example.com/v1alpha1/widgets", "/apis/events.k8s.io/v1/events",
	} {
		all = append(all, request{method: http.MethodGet, path: path, query: "timeoutSeconds=1"})
	}
	for _, query := range []string{"limit=%zz", "a;b", "limit", "limit=1&limit=2", "labelSelector=app%3Dweb&labelSelector=app%3Ddb", "=", "&&", "watch=0&watch=1&timeoutSeconds=1", "Limit=1"} {
		all = append(all, request{method: http.MethodGet, path: "/api/v1/pods", query: query})
	}
	return append(all, request{method: http.MethodGet, path: "/api/v1/events", query: "resourceVersion=x&limit=1"},
		request{method: http.MethodGet, path: "/api/v1/services", query: "watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&" +
			"resourceVersionMatch=NotOlderThan&resourceVersion=99999999"},
		request{method: http.MethodGet, path: "/api/v1/namespaces/ns/events/x", query: "resourceVersion=18446744073709551616"})
}

// discovery returns requests for what the server publishes about itself.
func (g *generator) discovery() []request {
	var all []request
	for _, path := range []string{
		"/api", "/api/", "/apis", "/apis/", "/api/v1", "/api/v1/", "/apis/apps", "/apis/apps/", "/apis/apps/v1", "/apis/batch", "/apis/batch/v1",
		"/apis/coordination.k8s.io", "/apis/discovery.k8s.io/v1", "/apis/lab.example.com", "/apis/lab.example.com/v1",
		"/version", "/version/", "/healthz", "/livez", "/readyz", "/healthz/", "/livez/ping", "/", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1",
	} {
		for _, accept := range []string{
			"", "application/json", "*/*", "text/html", acceptProtobuf, acceptDiscovery, acceptDiscovery + ",application/json", acceptDiscoveryBeta,
			acceptDiscovery + "," + acceptDiscoveryBeta + ",application/json", acceptTable,
		} {
			if strings.HasPrefix(path, "/openapi") && accept != "" {
				continue // some have 2 MB
			}
			all = append(all, request{method: http.MethodGet, path: path, accept: accept})
		}
		all = append(all,
			request{method: http.MethodGet, path: path, agent: "curl/8.5.0"},
			request{method: http.MethodHead, path: path},
			request{method: http.MethodPost, path: path},
		)
	}
	return all
}
