package access

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Caller is who sent a request.
type Caller struct {
	// User is the identity that the cluster knows. It is not set for Local.
	User authenticationv1.UserInfo

	// Certificate is set if a client certificate has proven the identity, and not a token.
	Certificate bool

	// Issued is set if the agent itself has issued the certificate, to the kubelet of its node.
	Issued bool

	// Local is set for a caller that this machine lets in, by the permissions of a file: a socket's, or
	// the file of the agent's own token. It may read the whole cache.
	Local bool
}

// ID identifies the caller's user: two callers with the same are the same to the cluster's server. It
// is empty for Local.
func (c *Caller) ID() string {
	if c.Local {
		return ""
	}
	return string(appendUser(nil, c.User.Username, c.User.UID, c.User.Groups, c.User.Extra))
}

// appendUser appends the identity of a user, without values that name only the credential.
func appendUser[Values ~[]string](b []byte, name, uid string, groups []string, extra map[string]Values) []byte {
	b = appendAll(b, name, uid)
	b = append(appendAll(b, groups...), ';')
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		if key != credentialID {
			b = append(appendAll(appendAll(b, key), extra[key]...), ';')
		}
	}
	return b
}

// appendAll appends values, with their lengths: no others have the same text.
func appendAll(b []byte, values ...string) []byte {
	for _, v := range values {
		b = append(strconv.AppendInt(b, int64(len(v)), 10), ':')
		b = append(b, v...)
	}
	return b
}

type callerKey struct{}

// WithCaller returns a context with the caller of a request.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of a request, nil if it has none.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// authenticated is the group of everybody who has proven an identity.
const authenticated = "system:authenticated"

// credentialID is the extra value that names the credential, not the user: it differs from token to
// token, so that no decision depends on it.
const credentialID = "authentication.kubernetes.io/credential-id"

// SameMachine reports whether a connection between two addresses is one within this machine: it comes
// from loopback, or from the very address that it goes to. The kernel drops packets of other machines
// that have one of its own addresses as their source.
func SameMachine(peer, own netip.Addr) bool {
	peer = peer.Unmap()
	return peer.IsLoopback() || peer.IsValid() && peer == own.Unmap()
}

// peerOf returns the address that a request comes from; the zero value if it has none.
func peerOf(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap()
}

// isLocal reports whether a process of this machine has sent a request.
func isLocal(r *http.Request) bool {
	var own netip.Addr
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		own = a.AddrPort().Addr()
	}
	return SameMachine(peerOf(r), own)
}

// originOf returns the addresses that one client can have as many of as it likes: all of this machine,
// and the 64 bits of IPv6 that a host gives to itself.
func originOf(r *http.Request) netip.Prefix {
	peer := peerOf(r)
	switch {
	case isLocal(r):
		return netip.Prefix{}
	case peer.Is4():
		return netip.PrefixFrom(peer, 32)
	}
	origin, _ := peer.Prefix(64) // fails without an address
	return origin
}
