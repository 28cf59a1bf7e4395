// Package rights says what an agent may have to be allowed on a kube-apiserver for a
// configuration, and writes it as RBAC objects.
//
// It is all that the agent asks for, and no more:
//
//   - list and watch on each resource in its namespaces, or in all. That is for lists,
//     watches, the probes before a resume and comparisons, which ask for metadata.
//   - get on it too where it has no selector: an object that is damaged or differs is asked for
//     by its name. With a selector that is a list of one, as only the server knows what selectors
//     mean.
//   - get on the namespace kube-system, whose UID identifies the cluster.
//   - get on the definitions of custom resources by their names, to notice when schemas change.
//
// Discovery is needed besides. Every cluster allows it to whoever is authenticated
// (system:discovery).
package rights
