package access

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Decisions remembers requests that the cluster's server has allowed, in a store, for the time without it.
// It is safe for concurrent use. A nil *Decisions remembers nothing.
type Decisions struct {
	db         store.DB
	collection store.Collection
	log        *slog.Logger
	expiry     time.Duration
	opened     time.Time // when this process opened them

	mu       sync.Mutex // held while the collection is written
	flushing bool       // a flush comes within flushDelay
}

// flushDelay is how long a decision waits for others before it is durable. By itself the store
// would wait for a minute: a client that starts again makes the decisions of that minute, and its
// node may lose its power and the server at once.
const flushDelay = time.Second

// remembered is a decision as it is stored. Its name is a hash of the request.
type remembered struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
		RV   string `json:"resourceVersion"`
	} `json:"metadata"`

	// At is when the server has allowed it. ByRules is set if RBAC objects did, which decide if
	// they are cached. User is a hash of the user's name.
	At      time.Time `json:"at"`
	ByRules bool      `json:"byRules,omitempty"`
	User    string    `json:"user,omitempty"`
}

// OpenDecisions returns the decisions that are stored in db, each of which is used for as long as
// expiry.
func OpenDecisions(db store.DB, expiry time.Duration, now time.Time, log *slog.Logger) (*Decisions, error) {
	c, err := db.Open(store.Info{ID: "decisions", Group: "snapcache", Version: "v1", Resource: "decisions", Kind: "Decision"})
	if err != nil {
		return nil, fmt.Errorf("remembered decisions: %w", err)
	}
	return &Decisions{db: db, collection: c, log: log, expiry: expiry, opened: now}, nil
}

func decisionName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// get returns the decision on a request, nil if none is stored.
func (d *Decisions) get(name string) *remembered {
	v, err := d.collection.View()
	if err != nil {
		return nil
	}
	defer v.Close()
	o, err := v.Get(name)
	if err != nil {
		return nil
	}
	r := &remembered{}
	if o.Into(r) != nil {
		return nil
	}
	return r
}

// allowed reports whether the server has allowed a request lately. rules is set if RBAC objects are
// cached: then decisions that such objects made do not count, as they may have changed. A decision of
// unknown age, because the clock is behind it or was ahead when it was made, counts from the start of
// this process: machines without a battery for their clock start like that.
func (d *Decisions) allowed(id string, now time.Time, rules bool) bool {
	if d == nil {
		return false
	}
	r := d.get(decisionName(id))
	if r == nil || rules && r.ByRules {
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
	name := decisionName(id)
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.get(name)
	change := store.Change{Key: name}
	var surplus []store.Change
	switch {
	case !allowed && was == nil:
		return
	case allowed && was != nil && was.ByRules == byRules && now.Sub(was.At) < d.expiry/8 && !now.Before(was.At):
		return
	case allowed:
		r := remembered{TypeMeta: metav1.TypeMeta{APIVersion: "snapcache/v1", Kind: "Decision"}, At: now.UTC(), ByRules: byRules, User: decisionName(user)[:16]}
		r.Metadata.Name, r.Metadata.RV = name, "1"
		raw, err := json.Marshal(r)
		if err == nil {
			change.Object, err = object.Parse(raw)
		}
		if err == nil {
			surplus, err = d.surplus(name, now)
		}
		if err != nil {
			d.log.Error("a decision can't be remembered", "error", err)
			return
		}
	}
	err := d.collection.Apply(store.Batch{Changes: append(surplus, change)})
	if err != nil {
		d.log.Error("a decision can't be remembered", "error", err)
		return
	}
	if !d.flushing {
		d.flushing = true
		time.AfterFunc(flushDelay, d.flush)
	}
}

// flush makes the decisions durable, unless the database was closed, which has done it.
func (d *Decisions) flush() {
	d.mu.Lock()
	d.flushing = false
	d.mu.Unlock()
	if err := d.db.Flush(); err != nil && !errors.Is(err, store.ErrClosed) {
		d.log.Error("decisions can't be remembered", "error", err)
	}
}

// surplus returns the deletions of the oldest decisions of the users who have most of them, if there
// are more than may be remembered. So a user that asks for ever more does not make the others' be
// forgotten. One decision is never deleted, and none only because it has expired: the clock may be wrong.
// Decisions with a date in the future, which a wrong clock has made, count as the oldest. The error means that there is
// no room for another one.
func (d *Decisions) surplus(but string, now time.Time) ([]store.Change, error) {
	if d.collection.State().Count < maxDecisions {
		return nil, nil
	}
	type aged struct {
		key, user string
		at        time.Time
	}
	var all []aged
	users := map[string]int{} // how many each has
	for o, err := range intact(d.collection) {
		if err != nil {
			return nil, fmt.Errorf("no room can be made: %w", err)
		}
		var r remembered
		_ = o.Into(&r) // one that can't be read is the oldest
		if r.At.After(now) {
			r.At = time.Time{}
		}
		all = append(all, aged{o.Key(), r.User, r.At})
		users[r.User]++
	}
	const left = maxDecisions * 9 / 10
	most := share(slices.Collect(maps.Values(users)), left)
	slices.SortFunc(all, func(a, b aged) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.key, b.key)) })
	var out []store.Change
	for _, x := range all {
		tooMany := users[x.user] > most && len(all)-len(out) > left
		if x.key != but && tooMany {
			out = append(out, store.Change{Key: x.key})
			users[x.user]--
		}
	}
	return out, nil
}

// share returns the most that each may have of a total, so that users with less keep all.
func share(numbers []int, total int) int {
	return sort.Search(total, func(most int) bool {
		sum := 0
		for _, n := range numbers {
			sum += min(n, most+1)
		}
		return sum > total
	})
}
