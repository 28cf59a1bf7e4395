// Package signed obtains the serving certificate of the Kubernetes API from a signer of the cluster, so that
// pods, which trust the cluster's CA alone, trust the agent.
//
// [Certificate.Run] creates a CertificateSigningRequest, waits until it is approved and signed, and renews
// the certificate at a random point between 70 % and 90 % of its lifetime, as client-go does. The directory
// of the API's credentials has
//
//	signed.pem           the certificate and its key, and as the first line what they are for
//	signed-request.pem   the key of the request that is open
//	cluster-ca.crt       the authorities of the agent's kubeconfig, which kubeconfigs for the API contain
//
// client-go has a certificate manager (k8s.io/client-go/util/certificate). It needs the typed clientset,
// which the product does not import because it doubles the binary, and it creates a request with another
// name at each try.
//
// Invariants:
//
//   - An agent has at most one request: its name follows from the agent's own authority. The key of the
//     request survives a restart, so that an approval is not lost.
//   - The certificate stays in use until another one replaces it, also if it has expired: the agent's own
//     would not be trusted by the same clients.
//   - The clock alone causes no series of requests. A certificate that is not valid yet shows that the clock
//     is behind, and is not renewed. After one that has to be renewed already when it is issued, and after a
//     refusal, the next request is an hour later, then two, up to a day.
//   - Nothing here prevents the start of the agent.
package signed
