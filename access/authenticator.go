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
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/internal/quota"
)

const (
	// answerAge is how long an answer of the cluster's server is used.
	answerAge = time.Minute

	// failedAge is how long a local decision is used after the server has given no answer, so that not each
	// request asks it, and perhaps waits for it.
	failedAge = 5 * time.Second

	// missingAge is that time for the token of an object that the cache has not.
	missingAge = 10 * time.Second

	// maxSeen limits the credentials that are remembered.
	maxSeen = 4096

	// unknownRate and unknownBurst limit the tokens of each address that no signing key of the cluster
	// has signed: only the server can judge them. maxAddresses is how many addresses are remembered.
	unknownRate  = 5 // a second
	unknownBurst = 100
	maxAddresses = 4096

	// reviewTimeout is how long the server may take for an answer. A server that takes longer is as
	// good as away.
	reviewTimeout = 10 * time.Second
)

// AuthenticatorOptions are the settings of an Authenticator. The zero value accepts no one.
type AuthenticatorOptions struct {
	// Token is the agent's own, whose bearer is Local; empty for none.
	Token string

	// Kubelet accepts the certificates that the agent has issued; nil for none.
	Kubelet *Kubelet

	// Connected reports whether the cluster's server can be reached; nil for never.
	Connected func() bool

	// Review asks the server whose token this is, for a client, which a comparable value identifies. If it
	// fails, the token is verified here, but ErrBusy refuses it for now. Connected needs it.
	Review func(ctx context.Context, client any, token string) (authenticationv1.TokenReviewStatus, error)

	// Lookup finds the objects that tokens are bound to. Keys need it.
	Lookup Lookup

	// Learned is called when Keys has another value because the server has named its audiences; nil for
	// nothing.
	Learned func()

	// Rotated is called when the server has accepted a token of the issuer of Keys that none of them has
	// signed; nil for nothing.
	Rotated func()

	// Refused is called with each request that is refused, and the reason; nil for nothing.
	Refused func(*http.Request, error)

	// Clock is the time; nil for the machine's.
	Clock clock.PassiveClock
}

// Authenticator finds out who callers are. It is safe for concurrent use.
type Authenticator struct {
	opts        AuthenticatorOptions
	began       time.Time
	authorities authorities
	keys        atomic.Pointer[Keys]
	learning    sync.Mutex // held while keys is replaced
	reviews     singleflight.Group
	seen        *lru.Cache   // of credential to *verdict
	unknown     *quota.Quota // of addresses, for tokens
}

// NewAuthenticator returns an Authenticator that has no authorities and no keys yet.
func NewAuthenticator(opts AuthenticatorOptions) *Authenticator {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &Authenticator{
		opts: opts, began: opts.Clock.Now(), seen: lru.New(maxSeen), unknown: quota.New(unknownRate, unknownBurst, maxAddresses),
	}
}

// SetClientCA sets the authorities that client certificates are accepted from, in PEM; empty for none.
func (a *Authenticator) SetClientCA(pem []byte) error { return a.authorities.set(pem) }

// SetKeys sets the keys that verify tokens while the server can't be reached. Keys without audiences get
// the audiences that are known of the same issuer.
func (a *Authenticator) SetKeys(k *Keys) {
	a.learning.Lock()
	defer a.learning.Unlock()
	if was := a.keys.Load(); was != nil && k != nil && k.Audiences == nil && k.Issuer == was.Issuer {
		next := *k
		next.Audiences = was.Audiences
		k = &next
	}
	a.keys.Store(k)
}

// Keys returns the keys that verify tokens, nil if they are not known.
func (a *Authenticator) Keys() *Keys { return a.keys.Load() }

// learn notes audiences that the server has named.
func (a *Authenticator) learn(audiences []string) {
	a.learning.Lock()
	was := a.keys.Load()
	if was == nil || len(audiences) == 0 {
		a.learning.Unlock()
		return
	}
	k := was.learned(audiences, a.opts.Clock.Now(), a.opts.Clock.Since(a.began))
	a.keys.Store(k)
	a.learning.Unlock()
	if k != was && a.opts.Learned != nil {
		a.opts.Learned()
	}
}

// credential is the hash of a certificate or a token.
type credential [sha256.Size]byte

// verdict is the result of checking a credential. It is immutable.
type verdict struct {
	at       time.Time
	by       any // the keys or authorities that verified it, unless the server has answered
	reviewed bool
	failed   time.Time                  // when the server was asked, and gave no answer; zero if it was not
	user     *authenticationv1.UserInfo // nil for none
	claims   *claims                    // of a token that the cluster has signed
	issued   bool                       // by the agent: it is accepted on this machine only
	missing  bool                       // the cache lacked an object that it is bound to, the server accepted it
	err      error                      // why there is no user
}

// errNoCredentials is the reason to refuse a request that has neither token nor certificate.
var errNoCredentials = errors.New("it has no credentials")

// errImpersonates is the reason to refuse a caller that wants to be another user, as kubectl --as. The
// cache can't know whether it may, and an answer for the caller itself would mislead it.
var errImpersonates = errors.New("it impersonates a user, which is not possible here")

// errNotLocal is the reason to refuse the agent's own token from elsewhere: it lets in every
// reader of a file on this machine, and the cluster has not been asked for its rights.
var errNotLocal = errors.New("the agent's own token is good on this machine only")

// ErrTooManyTokens means that so many tokens that the cluster may not know have come from an address that
// no more of them are looked at for now. Tokens that are known, or signed by the cluster, still are.
var ErrTooManyTokens = errors.New("too many unknown tokens come from its address")

// ErrBusy means that the cluster's server could not be asked about a client, because so many questions
// about it wait for an answer. A local decision does not take its place: a client could choose that by
// asking often.
var ErrBusy = errors.New("too many questions about it wait for the cluster's server")

// errNotOwn is the reason to refuse a token if only the agent's own is accepted.
var errNotOwn = errors.New("it is not the agent's own token")

// ErrNoKeys means that tokens can't be judged: the server can't be reached, and has not been asked for its
// keys yet.
var ErrNoKeys = errors.New("the cluster's signing keys are not known")

// Caller returns who has sent a request. The error is why it is refused; it has no secret in it.
func (a *Authenticator) Caller(r *http.Request) (*Caller, error) {
	c, err := a.caller(r)
	if err == nil && impersonates(r) {
		c, err = nil, errImpersonates
	}
	if err != nil && a.opts.Refused != nil {
		a.opts.Refused(r, err)
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
	if subtle.ConstantTimeCompare([]byte(token), []byte(a.opts.Token)) == 1 && a.opts.Token != "" {
		if !isLocal(r) {
			return nil, errNotLocal
		}
		return &Caller{Local: true}, nil
	}
	err := errNoCredentials
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		v := a.certificate(r.TLS.PeerCertificates)
		switch {
		case v.user == nil:
			err = fmt.Errorf("client certificate: %w", v.err)
		case v.issued && !isLocal(r):
			err = fmt.Errorf("client certificate: %w", errElsewhere)
		default:
			return &Caller{User: *v.user, Certificate: true, Issued: v.issued}, nil
		}
	}
	if token != "" {
		v := a.token(r, token)
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
	now, pool := a.opts.Clock.Now(), a.authorities.pool.Load()
	id := credential(sha256.Sum256(chain[0].Raw))
	if v := a.recall(id, now); v != nil && v.by == pool {
		return v
	}
	v := &verdict{at: now, by: pool}
	v.user, v.err = a.authorities.user(chain, now)
	if k := a.opts.Kubelet; v.user == nil && k.issued(chain[0]) {
		v.user, v.err = k.User(chain[0], now)
		v.issued = true
	}
	v.err = brief(v.err)
	if v.user != nil { // others could displace verdicts on tokens
		a.seen.Add(id, v)
	}
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
func (a *Authenticator) token(r *http.Request, token string) *verdict {
	id := credential(sha256.Sum256([]byte(token)))
	v, connected := a.recall(id, a.opts.Clock.Now()), a.opts.Connected != nil && a.opts.Connected()
	if connected && v != nil && v.reviewed && a.stands(v) {
		return v
	}
	signed := a.signature(v, token)
	if v == nil && signed.err != nil && !a.unknown.Allow(originOf(r), a.opts.Clock.Now()) {
		return &verdict{err: ErrTooManyTokens} // a flood of them leaves no trace, and does not reach the server
	}
	switch {
	case connected && a.opts.Clock.Now().Sub(signed.failed) >= failedAge:
		signed = a.review(r, id, token, signed)
	case signed != v:
		a.seen.Add(id, signed)
	}
	return a.verify(signed)
}

// stands reports whether an answer of the server counts still. Once the cache lacks an object
// that the token is bound to, the server is asked again: the pod was deleted, or has not come yet. The
// server itself may remember tokens for missingAge.
func (a *Authenticator) stands(v *verdict) bool {
	if v.claims == nil || !v.claims.missing(a.opts.Lookup) {
		return true
	}
	return v.missing && a.opts.Clock.Now().Sub(v.at) < missingAge
}

// signature returns the verdict on the signature of a token; v is the one that is recalled, or nil.
func (a *Authenticator) signature(v *verdict, token string) *verdict {
	keys := a.keys.Load()
	if v != nil && !v.reviewed && v.by == keys {
		return v
	}
	v = &verdict{at: a.opts.Clock.Now(), by: keys}
	switch {
	case keys != nil:
		v.claims, v.err = keys.verify(token)
		v.err = brief(v.err)
	case a.opts.Connected == nil:
		v.err = errNotOwn
	default:
		v.err = ErrNoKeys
	}
	return v
}

// review asks the server, and returns its verdict, or that on the signature if it gives no answer.
func (a *Authenticator) review(r *http.Request, id credential, token string, signed *verdict) *verdict {
	x, _, _ := a.reviews.Do(string(id[:]), func() (any, error) {
		// One caller's end must not end the requests that wait with it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reviewTimeout)
		defer cancel()
		c, client := signed.claims, any(originOf(r))
		if c != nil {
			client = c.Subject
		}
		status, err := a.opts.Review(ctx, client, token)
		v := &verdict{at: a.opts.Clock.Now(), reviewed: true, claims: c, missing: c != nil && c.missing(a.opts.Lookup)}
		switch {
		case errors.Is(err, ErrBusy):
			return &verdict{err: ErrBusy}, nil
		case err != nil:
			failed := *signed
			failed.failed, v = v.at, &failed
		case status.Authenticated:
			v.user = &status.User
			a.learn(status.Audiences)
			if c == nil && a.opts.Rotated != nil && a.keys.Load().lack(token) {
				a.opts.Rotated()
			}
		default:
			v.err = errors.New("the cluster does not accept it")
		}
		a.seen.Add(id, v)
		return v, nil
	})
	v, _ := x.(*verdict)
	return v
}

// verify returns the verdict on a token without the server, unless that has answered; v is that on its
// signature. Only that is remembered: time passes, and objects are deleted.
func (a *Authenticator) verify(v *verdict) *verdict {
	if v.reviewed || v.err != nil {
		return v
	}
	// Give or take a minute, as in a kube-apiserver.
	err := v.claims.ValidateWithLeeway(jwt.Expected{Time: a.opts.Clock.Now()}, jwt.DefaultLeeway)
	if err == nil {
		err = v.claims.bound(a.opts.Lookup)
	}
	if err != nil {
		return &verdict{err: err}
	}
	return &verdict{user: v.claims.user()}
}

// maxReason limits the bytes of an error that is remembered.
const maxReason = 200

// brief returns an error that holds nothing but the beginning of its text: errors of certificates hold the
// certificate, and others repeat the request.
func brief(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return errors.New(text)
}
