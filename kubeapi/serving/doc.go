// Package serving connects the handler of the Kubernetes API to clients: it has the listeners, their
// limits, and the credentials of the one on TCP.
//
// The unix socket is protected by the permissions of its file. The TCP listener has TLS and one
// token, which the agent makes at its first start. [Ensure] keeps the token and a certificate
// authority in a directory:
//
//	ca.key   the authority's private key
//	ca.crt   its certificate, for ten years
//	token    the bearer token
//
// and, if that is configured, a client certificate of the authority for the kubelet of this node
// ([Kubelet]), in kubelet.pem, with a kubeconfig, kubelet.kubeconfig.
//
// The serving certificate is not stored: [Credentials.Listen] makes a new one each time. A certificate that a
// signer of the cluster issues (package signed) takes its place while the listener is open.
//
// Invariants:
//
//   - A file that can't be used is replaced, so that it never prevents a start. Only files that may
//     not be read or written do.
//   - A wrong clock makes no certificate unusable: all are valid from 1970 on, and no end is computed
//     from a time before this code was written.
//   - A certificate of the authority that is replaced has the same name and key: clients that have the
//     old one accept the new serving certificates until the old one ends.
package serving
