package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/internal/ledger"
	"github.com/snapcache/snapcache/store"
)

// Decisions remembers requests that the cluster's server has allowed, in a store, for the time without it.
// It is safe for concurrent use. A nil *Decisions remembers nothing.
type Decisions struct {
	stored *ledger.Ledger[storedDecision]
	log    *slog.Logger
	expiry time.Duration
	opened time.Time // when this process opened them
}

// flushDelay is how long a decision waits for others before it is durable. By itself the store
// would wait for a minute: a client that starts again makes the decisions of that minute, and its
// node may lose its power and the server at once.
const flushDelay = time.Second

// storedDecision is a decision as it is stored, under a hash of the request.
type storedDecision struct {
	// At is when the server has allowed it. ByRules is set if RBAC objects did, which decide if
	// they are cached. User is a hash of the user's name.
	At      time.Time `json:"at"`
	ByRules bool      `json:"byRules,omitempty"`
	User    string    `json:"user,omitempty"`
}

// owner implements [ledger.Options].Owner. A decision with a date in the future, which a wrong clock has
// made, counts as the oldest.
func (r *storedDecision) owner(now time.Time) (user string, at time.Time) {
	if r.At.After(now) {
		return r.User, time.Time{}
	}
	return r.User, r.At
}

// OpenDecisions returns the decisions that are stored in db, each of which is used for as long as
// expiry. None is deleted only because it has expired: the clock may be wrong.
func OpenDecisions(db store.DB, expiry time.Duration, now time.Time, log *slog.Logger) (*Decisions, error) {
	stored, err := ledger.Open(db, ledger.Options[storedDecision]{
		Resource: "decisions", Kind: "Decision", Owner: (*storedDecision).owner, Max: maxDecisions, MaxBytes: maxDecisions << 10,
		FlushDelay: flushDelay, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("remembered decisions: %w", err)
	}
	return &Decisions{stored: stored, log: log, expiry: expiry, opened: now}, nil
}

func decisionName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// allowed reports whether the server has allowed a request lately. rules is set if RBAC objects are
// cached: then decisions that such objects made do not count, as they may have changed. A decision of
// unknown age, because the clock is behind it or was ahead when it was made, counts from the start of
// this process: machines without a battery for their clock start like that.
func (d *Decisions) allowed(id string, now time.Time, rules bool) bool {
	if d == nil {
		return false
	}
	r, err := d.stored.Get(decisionName(id))
	if err != nil || rules && r.ByRules {
		return false
	}
	from := r.At
	if !clocks.AgeOf(clocks.Stamp{At: from}, clocks.Stamp{At: now}).Known() {
		from = d.opened
	}
	return now.Sub(from) < d.expiry
}

// note stores a decision of the server on a user's request. To spare the disk, one that is repeated
// is only stored again when an eighth of its time has passed.
func (d *Decisions) note(id, user string, allowed, byRules bool, now time.Time) {
	if d == nil {
		return
	}
	err := d.stored.Update(decisionName(id), now, func(was *storedDecision) *storedDecision {
		if !allowed {
			return nil
		}
		if was != nil && was.ByRules == byRules && now.Sub(was.At) < d.expiry/8 && !now.Before(was.At) {
			return was
		}
		return &storedDecision{At: now.UTC(), ByRules: byRules, User: decisionName(user)[:16]}
	})
	if err != nil {
		d.log.Error("a decision can't be remembered", "error", err)
	}
}
