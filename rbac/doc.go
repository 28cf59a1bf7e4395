// Package rbac computes the RBAC permissions that an agent with a given configuration needs on a
// kube-apiserver, and returns them as RBAC objects.
//
// These are all requests of the agent:
//
//   - list and watch on each resource, in its namespaces or in all of them: for lists, watches, the
//     probe before a resume and comparisons, which read only metadata.
//   - get on each resource without a selector: an object that is corrupt or differs is read by its
//     name. With a selector, the agent lists that one object instead, because only the server can
//     evaluate selectors.
//   - get on the namespace kube-system, whose UID identifies the cluster.
//   - get on the definitions of custom resources by name, to notice when schemas change.
//   - with access control, create on TokenReviews and SubjectAccessReviews, and get on the client CA
//     and on the keys of tokens.
//   - with a signer, create, get and delete on CertificateSigningRequests. A request is deleted if it
//     was denied long ago, or is of a key that is lost.
//
// Discovery is needed too. Every cluster allows it to all authenticated users (system:discovery).
package rbac
