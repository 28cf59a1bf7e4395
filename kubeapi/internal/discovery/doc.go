// Package discovery makes the discovery documents of a read-only Kubernetes API and answers requests
// for them: the legacy ones (APIVersions, APIGroupList, APIGroup, APIResourceList) and the aggregated
// ones (APIGroupDiscoveryList of apidiscovery.k8s.io/v2).
//
// Invariants:
//
//   - Documents list what the API serves, and nothing else: a client that asks for more fails before
//     it sends the request.
//   - For the same resources a document has the fields and values of a kube-apiserver's, except the
//     verbs, which are those of a read-only API, and storageVersionHash, which is missing.
package discovery
