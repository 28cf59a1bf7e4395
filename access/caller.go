package access

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Caller is who sent a request.
type Caller struct {
	// User is the identity that the cluster knows. It is not set for Local.
	User authenticationv1.UserInfo

	// Certificate is set if a client certificate has proven the identity, and not a token.
	Certificate bool

	// Local is set for a caller that this machine lets in, by the permissions of a file: that of a
	// socket, or of the agent's own token. It may read all that is cached.
	Local bool
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
