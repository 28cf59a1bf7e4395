package tokens

import (
	"errors"
	"log/slog"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/snapcache/snapcache/internal/ledger"
	"github.com/snapcache/snapcache/store"
)

// maxTokens and maxStored, in bytes, limit the stored tokens.
const (
	maxTokens = 1000
	maxStored = 4 << 20
)

// ErrNotEncrypted means that a store would have tokens in clear.
var ErrNotEncrypted = errors.New("tokens are only stored encrypted")

// Store is the remembered tokens, by the IDs of their requests. They are durable at once: the next start
// may be without the server.
type Store = ledger.Ledger[storedToken]

// Open returns the tokens that are stored in db, which must be encrypted, otherwise the error is
// ErrNotEncrypted. The caller closes db.
func Open(db store.DB, log *slog.Logger) (*Store, error) {
	if db.Stats().EncryptionKey == "" {
		return nil, ErrNotEncrypted
	}
	return ledger.Open(db, ledger.Options[storedToken]{
		Resource: "tokens", Kind: "Token", Owner: (*storedToken).owner, Expired: (*storedToken).expired,
		Max: maxTokens, MaxBytes: maxStored, Log: log,
	})
}

// storedToken is a token as it is stored.
type storedToken struct {
	// Caller is a hash of the identity of the user that has got it.
	Caller string `json:"caller"`

	Answer authenticationv1.TokenRequest `json:"answer"`
}

// String and GoString return no part of the token.
func (storedToken) String() string   { return "a token" }
func (storedToken) GoString() string { return "a token" }

// owner and expired implement [ledger.Options]. Of too many tokens, the ones that expire first go.
func (r *storedToken) owner(time.Time) (caller string, at time.Time) {
	return r.Caller, expiry(&r.Answer)
}
func (r *storedToken) expired(now time.Time) bool { return !now.Before(expiry(&r.Answer)) }

// notAhead returns now or, if that is earlier, when the server has issued a token just now, by its own
// clock: this machine's may be ahead.
func notAhead(now time.Time, t *authenticationv1.TokenRequest) time.Time {
	if t.Spec.ExpirationSeconds == nil {
		return now
	}
	issued := t.Status.ExpirationTimestamp.Add(-time.Duration(*t.Spec.ExpirationSeconds) * time.Second)
	if issued.Before(now) {
		return issued
	}
	return now
}
