package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// answerAge is how long an answer of the cluster's server is used.
	answerAge = time.Minute

	// maxSeen limits the credentials that are remembered.
	maxSeen = 4096

	// reviewTimeout is how long the server may take for an answer. A server that takes longer is as
	// good as away.
	reviewTimeout = 10 * time.Second
)

// Authenticator finds out who callers are. It is safe for concurrent use. Its fields are set before
// the first call.
type Authenticator struct {
	// Connected reports whether the cluster's server can be reached; nil for never.
	Connected func() bool

	// Review asks the server whose token this is. If it fails, the token is verified here.
	Review func(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error)

	// Lookup finds the objects that tokens are bound to.
	Lookup Lookup

	// Refused is called with each request that is refused, and the reason; nil for nothing.
	Refused func(*http.Request, error)

	local       string
	clock       clock.PassiveClock
	authorities authorities
	keys        atomic.Pointer[Keys]
	reviews     singleflight.Group
	seen        *lru.Cache // of credential to *verdict
}

// NewAuthenticator returns an Authenticator that knows only the bearer of the agent's own token, who is
// Local.
func NewAuthenticator(token string, c clock.PassiveClock) *Authenticator {
	return &Authenticator{local: token, clock: c, seen: lru.New(maxSeen)}
}

// SetClientCA sets the authorities that client certificates are accepted from, in PEM; empty for none.
func (a *Authenticator) SetClientCA(pem []byte) error { return a.authorities.set(pem) }

// SetKeys sets what tokens are verified with while the server can't be reached.
func (a *Authenticator) SetKeys(k *Keys) { a.keys.Store(k) }

// credential is the hash of a certificate or a token.
type credential [sha256.Size]byte

// verdict is what is known of a credential. It is immutable.
type verdict struct {
	at       time.Time
	by       any // what it was verified with, unless the server has answered
	reviewed bool
	user     *authenticationv1.UserInfo // nil for none
	claims   *claims                    // of a token that was verified here
	err      error                      // why there is no user
}

// errNoCredentials is the reason to refuse a request that has neither token nor certificate.
var errNoCredentials = errors.New("it has no credentials")

// errImpersonates is the reason to refuse a caller that wants to be another user, as kubectl --as. The
// cache can't know whether it may, and an answer for the caller itself would mislead it.
var errImpersonates = errors.New("it impersonates a user, which is not possible here")

// Caller returns who has sent a request. The error is why it is refused; it has no secret in it.
func (a *Authenticator) Caller(r *http.Request) (*Caller, error) {
	c, err := a.caller(r)
	if err == nil && impersonates(r) {
		c, err = nil, errImpersonates
	}
	if err != nil && a.Refused != nil {
		a.Refused(r, err)
	}
	return c, err
}

func impersonates(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

func (a *Authenticator) caller(r *http.Request) (*Caller, error) {
	token := bearer(r)
	if subtle.ConstantTimeCompare([]byte(token), []byte(a.local)) == 1 && a.local != "" {
		return &Caller{Local: true}, nil
	}
	err := errNoCredentials
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		v := a.certificate(r.TLS.PeerCertificates)
		if v.user != nil {
			return &Caller{User: *v.user, Certificate: true}, nil
		}
		err = fmt.Errorf("client certificate: %w", v.err)
	}
	if token != "" {
		v := a.token(r.Context(), token)
		if v.user != nil {
			return &Caller{User: *v.user}, nil
		}
		err = fmt.Errorf("bearer token: %w", v.err)
	}
	return nil, err
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// certificate returns the verdict on a client certificate.
func (a *Authenticator) certificate(chain []*x509.Certificate) *verdict {
	now, pool := a.clock.Now(), a.authorities.pool.Load()
	id := credential(sha256.Sum256(chain[0].Raw))
	if v := a.recall(id, now); v != nil && v.by == pool {
		return v
	}
	v := &verdict{at: now, by: pool}
	v.user, v.err = a.authorities.user(chain, now)
	a.seen.Add(id, v)
	return v
}

// recall returns the verdict on a credential if there is one that is not too old.
func (a *Authenticator) recall(id credential, now time.Time) *verdict {
	x, _ := a.seen.Get(id)
	v, _ := x.(*verdict)
	if v == nil || now.Sub(v.at) >= answerAge || now.Before(v.at) {
		return nil
	}
	return v
}

// token returns the verdict on a bearer token.
func (a *Authenticator) token(ctx context.Context, token string) *verdict {
	id := credential(sha256.Sum256([]byte(token)))
	v := a.recall(id, a.clock.Now())
	if a.Connected != nil && a.Connected() {
		if v != nil && v.reviewed {
			return v
		}
		if answer := a.review(ctx, id, token); answer != nil {
			return answer
		}
	}
	return a.verify(id, token, v)
}

// review asks the server, and returns nil if it gives no answer.
func (a *Authenticator) review(ctx context.Context, id credential, token string) *verdict {
	x, _, _ := a.reviews.Do(string(id[:]), func() (any, error) {
		// One caller's end must not be that of those who wait with it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		status, err := a.Review(ctx, token)
		if err != nil {
			return (*verdict)(nil), nil //nolint:nilerr // the token is verified here
		}
		v := &verdict{at: a.clock.Now(), reviewed: true}
		if status.Authenticated {
			v.user = &status.User
		} else {
			v.err = errors.New("the cluster does not accept it")
		}
		a.seen.Add(id, v)
		return v, nil
	})
	v, _ := x.(*verdict)
	return v
}

// verify returns the verdict on a token without the server; v is the one that is recalled, or nil. Only
// the check of the signature is remembered: time passes, and objects are deleted.
func (a *Authenticator) verify(id credential, token string, v *verdict) *verdict {
	now, keys := a.clock.Now(), a.keys.Load()
	if v == nil || v.reviewed || v.by != keys {
		v = &verdict{at: now, by: keys}
		v.claims, v.err = keys.verify(token)
		a.seen.Add(id, v)
	}
	if v.err != nil {
		return v
	}
	err := v.claims.validAt(now)
	if err == nil {
		err = v.claims.bound(a.Lookup)
	}
	if err != nil {
		return &verdict{err: err}
	}
	return &verdict{user: v.claims.user()}
}
