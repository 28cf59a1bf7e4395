// Package access decides who may read the cache over the network: exactly the users that may read the
// same objects in the cluster.
//
// An [Authenticator] finds out who a caller is, from a client certificate or a bearer token, and an
// [Authorizer] whether it may do what it asks for. While the cluster's server can be reached, it
// answers both questions, for a minute at a time. While it can't, certificates are verified as always;
// tokens by the cluster's signing keys and by the cached objects that they are bound to; and
// permissions come from the cached RBAC objects, and from decisions of the server that are remembered.
// A request that can't be decided is refused.
package access
