package tokens

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

const (
	// maxTokens and maxStored, in bytes, limit the stored tokens.
	maxTokens = 1000
	maxStored = 4 << 20

	// purgeInterval is the time after which expired tokens are deleted with the next change.
	purgeInterval = time.Hour
)

// ErrNotEncrypted means that a store would have tokens in clear.
var ErrNotEncrypted = errors.New("tokens are only stored encrypted")

// Store is where tokens are remembered. It is safe for concurrent use.
type Store struct {
	db         store.DB
	collection store.Collection
	log        *slog.Logger

	mu     sync.Mutex // held while the collection is written
	purged time.Time
}

// Open returns the tokens that are stored in db, which must be encrypted, otherwise the error is
// ErrNotEncrypted. The caller closes db.
func Open(db store.DB, log *slog.Logger) (*Store, error) {
	if db.Stats().EncryptionKey == "" {
		return nil, ErrNotEncrypted
	}
	c, err := db.Open(store.Info{ID: "tokens", Group: "snapcache", Version: "v1", Resource: "tokens", Kind: "Token"})
	if err != nil {
		return nil, err
	}
	return &Store{db: db, collection: c, log: log}, nil
}

// remembered is a token as it is stored, under the name of its request.
type remembered struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
		RV   string `json:"resourceVersion"`
	} `json:"metadata"`

	// Caller is a hash of the identity of the user that has got it.
	Caller string `json:"caller"`

	Answer authenticationv1.TokenRequest `json:"answer"`
}

// String and GoString return no part of the token.
func (remembered) String() string   { return "a token" }
func (remembered) GoString() string { return "a token" }

// get returns the answer to a request, nil if none is stored.
func (s *Store) get(id string) *authenticationv1.TokenRequest {
	v, err := s.collection.View()
	if err != nil {
		return nil
	}
	defer v.Close()
	o, err := v.Get(id)
	if err != nil {
		return nil
	}
	r := &remembered{}
	if o.Into(r) != nil {
		return nil
	}
	return &r.Answer
}

// newChange returns the change that stores the answer to a request.
func newChange(ask *request, t *authenticationv1.TokenRequest) (store.Change, error) {
	r := remembered{TypeMeta: metav1.TypeMeta{APIVersion: "snapcache/v1", Kind: "Token"}, Caller: ask.caller, Answer: *t}
	r.Metadata.Name, r.Metadata.RV = ask.id, "1"
	raw, err := json.Marshal(r)
	if err != nil {
		return store.Change{}, err
	}
	o, err := object.Parse(raw)
	return store.Change{Key: ask.id, Object: o}, err
}

// put stores the answer to a request, durably: the next start may be without the server.
func (s *Store) put(ask *request, t *authenticationv1.TokenRequest, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change, err := newChange(ask, t)
	var surplus []store.Change
	if err == nil {
		surplus, err = s.surplus(ask.id, notAhead(now, t))
	}
	if err == nil {
		err = s.apply(append(surplus, change)...)
	}
	if err != nil {
		s.log.Error("a token can't be remembered", "namespace", ask.namespace, "serviceAccount", ask.name, "error", err)
	}
}

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

func (s *Store) apply(changes ...store.Change) error {
	if err := s.collection.Apply(store.Batch{Changes: changes}); err != nil {
		return err
	}
	return s.db.Flush()
}

// remove deletes the answer to a request, if there is one.
func (s *Store) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.collection.Header(id); errors.Is(err, store.ErrNotFound) {
		return
	}
	if err := s.apply(store.Change{Key: id}); err != nil {
		s.log.Error("a token can't be forgotten", "error", err)
	}
}

// surplus returns deletions of the tokens that have expired or can't be read. If more are left than
// may be stored, it adds some of them, but never the token but, which is about to be stored. The error
// means that there is no room for it.
func (s *Store) surplus(but string, now time.Time) ([]store.Change, error) {
	state := s.collection.State()
	full := state.Count >= maxTokens || state.Bytes >= maxStored
	if age := now.Sub(s.purged); !full && age >= 0 && age < purgeInterval {
		return nil, nil
	}
	s.purged = now
	unread := func(err error) error {
		if !full {
			return nil // there is room
		}
		return fmt.Errorf("no room can be made: %w", err)
	}
	v, err := s.collection.View()
	if err != nil {
		return nil, unread(err)
	}
	defer v.Close()
	var out []store.Change
	var all []held
	of := map[string]int{} // bytes, by caller
	for o, err := range v.Objects("", "") {
		var r remembered
		var damage *store.CorruptionError
		switch {
		case errors.As(err, &damage) && damage.Key != "":
			out = append(out, store.Change{Key: damage.Key})
		case err != nil:
			return nil, unread(err)
		case o.Key() == but:
		case o.Into(&r) != nil || !now.Before(expiry(&r.Answer)):
			out = append(out, store.Change{Key: o.Key()})
		default:
			all = append(all, held{o.Key(), r.Caller, expiry(&r.Answer), len(o.Raw())})
			of[r.Caller] += len(o.Raw())
		}
	}
	if full {
		out = append(out, excess(all, of)...)
	}
	return out, nil
}

// held is a token in the store.
type held struct {
	key, caller string
	expires     time.Time
	bytes       int
}

// excess returns the deletions of a tenth of maxTokens: each is of the token that expires first of the
// caller with the most bytes, so that no caller displaces the tokens of others.
func excess(all []held, of map[string]int) (out []store.Change) {
	slices.SortFunc(all, func(a, b held) int { return cmp.Or(a.expires.Compare(b.expires), cmp.Compare(a.key, b.key)) })
	for len(out) < maxTokens/10 && len(all) > 0 {
		most := ""
		for caller, bytes := range of {
			if bytes > of[most] || bytes == of[most] && caller > most {
				most = caller
			}
		}
		i := slices.IndexFunc(all, func(h held) bool { return h.caller == most })
		out = append(out, store.Change{Key: all[i].key})
		of[most] -= all[i].bytes
		all = slices.Delete(all, i, i+1)
	}
	return out
}
