// Package discovery makes the discovery documents of a read-only Kubernetes API and answers requests
// for them: the legacy ones (APIVersions, APIGroupList, APIGroup, APIResourceList) and the aggregated
// ones (APIGroupDiscoveryList of apidiscovery.k8s.io/v2).
//
// Invariants:
//
//   - Documents of New list the resources that the API serves, and nothing else: a client that asks for
//     more fails before it sends the request. Parse returns a server's.
//   - For the same resources a document has the fields and values of a kube-apiserver's, except for
//     verbs that write, and storageVersionHash, which is missing.
package discovery
