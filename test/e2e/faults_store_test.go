package e2e

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/e2e/faultfs"
)

// faultKeys is the number of keys that a collection on a faulty disk uses.
const faultKeys = 40

// faultyStore is a durable store on a faulty disk, and the models of its expected content.
type faultyStore struct {
	t      *testing.T
	disk   *faultfs.Disk
	random *rand.Rand
	path   string
	snaps  snapshot.Dir
	now    time.Time
	db     *bolt.DB
	keys   bolt.Keyring // keys of the encryption
	sealed bool         // always encrypted
	noisy  bool         // the objects do not compress, and take many pages
	rv     int

	colls   []*faultyCollection
	objects map[string]string // all there ever were: JSON by key and resourceVersion
}

// faultyCollection is one collection of a faultyStore.
type faultyCollection struct {
	id string
	c  store.Collection

	// now is what readers must see, nil if there is no such collection; maybe what a start after a
	// power cut may find besides: all states since the newest durable one; ever all states there
	// ever were.
	now         *storetest.Model
	maybe, ever []*storetest.Model

	tried *storetest.Model // the content of the list that failed last; nil if none did since
}

func newFaultyStore(t *testing.T, random *rand.Rand) *faultyStore {
	d := faultfs.New(t, random.Uint64())
	x := &faultyStore{
		t: t, disk: d, random: random, path: filepath.Join(d.Dir, "cache.db"),
		snaps: snapshot.Dir{Path: filepath.Join(d.Dir, "snapshots"), Writer: "test"},
		now:   time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), objects: map[string]string{},
	}
	for _, id := range []string{"pods", "widgets"} {
		x.colls = append(x.colls, &faultyCollection{id: id, ever: []*storetest.Model{nil}})
	}
	return x
}

func faultIndexes() []store.Index {
	return []store.Index{store.LabelIndex("app", "app"), store.FieldIndex("payload", "data.payload")}
}

// options returns options with which only the test makes changes durable.
func (x *faultyStore) options() bolt.Options {
	return bolt.Options{
		FlushInterval: time.Hour, ViewLimit: time.Hour, ReplaceBudget: 6000, Keys: x.keys,
		HistoryRetention: storetest.HistoryRetention, // the model's clock is not that of the file
	}
}

// later returns a time that no other call returned, for names.
func (x *faultyStore) later() time.Time {
	x.now = x.now.Add(time.Second)
	return x.now
}

// start opens the store like the start of an agent.
func (x *faultyStore) start() (restore.File, error) {
	db, verdict, err := restore.Open(context.Background(), x.path, x.options(), restore.Sources{Snapshots: x.snaps}, x.later(), nil)
	x.db = db
	return verdict, err
}

// open opens the collections, and creates the missing ones.
func (x *faultyStore) open() error {
	for _, c := range x.colls {
		next := c.now
		if next == nil {
			next = storetest.NewModel(storetest.Info(c.id), faultIndexes()...)
			c.maybe, c.ever = append(c.maybe, next), append(c.ever, next)
		}
		var err error
		if x.db.Owner(c.id) != nil { // after a fault that the database survived
			err = c.c.Reopen(storetest.Info(c.id), faultIndexes()...)
		} else {
			c.c, err = x.db.Open(storetest.Info(c.id), faultIndexes()...)
		}
		if err != nil {
			return err
		}
		if c.now != next {
			x.set(c, next)
			x.durable()
		}
	}
	return nil
}

// set sets what readers must see from now on.
func (x *faultyStore) set(c *faultyCollection, m *storetest.Model) {
	c.maybe = append(c.maybe, c.now)
	c.now = m
	c.ever = append(c.ever, m)
}

// durable notes that everything is durable.
func (x *faultyStore) durable() {
	for _, c := range x.colls {
		c.maybe = nil
	}
}

func (x *faultyStore) object(i int) store.Change {
	x.rv++
	labels := map[string]string{"app": fmt.Sprint("app-", x.random.IntN(4))}
	payload := strings.Repeat(fmt.Sprint(x.rv, " "), 1+x.random.IntN(300))
	if x.noisy {
		noise := make([]byte, 1000)
		for i := range noise {
			noise[i] = byte(x.random.Uint32())
		}
		payload = hex.EncodeToString(noise)
	}
	o := storetest.Object(fmt.Sprint("ns-", i%3), fmt.Sprint("o-", i), "u", fmt.Sprint(x.rv), labels, payload)
	x.objects[o.Key()+"@"+o.GetResourceVersion()] = string(o.Raw())
	return storetest.Put(o)
}

// genuine checks that each readable object was once written with exactly this content. An
// unreadable object must be reported as corrupt.
func (x *faultyStore) genuine(what string) {
	x.t.Helper()
	for _, c := range x.colls {
		v, err := x.db.View(c.id)
		if err != nil {
			continue
		}
		for o, err := range v.Objects("", "") {
			if err != nil {
				require.ErrorAs(x.t, err, new(*store.CorruptionError), "%s: %s", what, c.id)
				continue
			}
			require.Equal(x.t, x.objects[o.Key()+"@"+o.GetResourceVersion()], string(o.Raw()), "%s: %s", what, c.id)
		}
		v.Close()
	}
}

// changes returns up to n random changes, each of another key.
func (x *faultyStore) changes(n int) []store.Change {
	var changes []store.Change
	for _, i := range x.random.Perm(faultKeys)[:x.random.IntN(min(n, faultKeys)+1)] {
		ch := x.object(i)
		if x.random.IntN(4) == 0 {
			ch = store.Change{Key: ch.Key, RV: fmt.Sprint(x.rv)}
		}
		changes = append(changes, ch)
	}
	return changes
}

// checkpoint returns a checkpoint past all changes so far.
func (x *faultyStore) checkpoint() store.Checkpoint {
	x.rv += 50
	cp := storetest.Checkpoint(x.rv)
	cp.Cluster, cp.ListReason = "one", store.ReasonExpired
	return cp
}

// step takes a random step and returns an error if the disk failed it.
func (x *faultyStore) step() error {
	for _, c := range x.colls {
		c.tried = nil
	}
	c := x.colls[x.random.IntN(len(x.colls))]
	switch n := x.random.IntN(20); {
	case n < 10:
		return x.apply(c)
	case n < 14:
		return x.flush()
	case n < 17:
		return x.replace(c)
	case n < 18:
		return x.reopen()
	case n < 19:
		_, _, err := x.db.Compact(context.Background())
		if x.keys.Primary != nil && errors.Is(err, bolt.ErrBusy) {
			return nil // a rewrite under another key is in progress, and was tried again after a fault
		}
		return err
	default:
		_, err := x.snaps.Create(context.Background(), x.db, x.later(), nil)
		if err == nil {
			x.durable()
		}
		return err
	}
}

func (x *faultyStore) apply(c *faultyCollection) error {
	b := store.Batch{Changes: x.changes(12), Checkpoint: x.checkpoint()}
	next := c.now.Clone()
	next.Apply(b)
	if err := c.c.Apply(b); err != nil {
		return err
	}
	x.set(c, next)
	return nil
}

func (x *faultyStore) flush() error {
	if err := x.db.Flush(); err != nil {
		return err
	}
	x.durable()
	return nil
}

// replace replaces the collection with a list; some lists fill a new generation.
func (x *faultyStore) replace(c *faultyCollection) error {
	r, err := c.c.Replace()
	if err != nil {
		return err
	}
	changes := x.changes(faultKeys)
	next := c.now.Clone()
	for part := range 2 {
		half := changes[part*len(changes)/2 : (part+1)*len(changes)/2]
		if err := r.Apply(half); err != nil {
			return errors.Join(err, r.Abort())
		}
	}
	if x.random.IntN(4) == 0 {
		return r.Abort()
	}
	cp := x.checkpoint()
	next.Replace(storetest.Info(c.id), changes, cp)
	if err := r.Commit(cp); err != nil {
		c.maybe = append(c.maybe, next) // only its last sync may have failed
		c.ever = append(c.ever, next)
		c.tried = next
		return errors.Join(err, r.Abort())
	}
	x.set(c, next)
	x.durable()
	return nil
}

func (x *faultyStore) reopen() error {
	err := x.db.Close()
	x.db = nil
	if err != nil {
		return err
	}
	x.durable()
	if x.sealed {
		x.rotate()
	}
	if _, err := x.start(); err != nil {
		return err
	}
	if err := x.open(); err != nil {
		err = errors.Join(err, x.db.Close())
		x.db = nil
		return err
	}
	return x.rekey()
}

// equal compares what readers see with the models.
func (x *faultyStore) equal(what string) {
	x.t.Helper()
	for _, c := range x.colls {
		require.NoError(x.t, x.diff(c, c.now), "%s: %s", what, c.id)
	}
}

// diff returns the first difference between a collection and a model.
func (x *faultyStore) diff(c *faultyCollection, m *storetest.Model) error {
	v, err := x.db.View(c.id)
	if m == nil {
		if errors.Is(err, store.ErrNoCollection) {
			return nil
		}
		if err == nil {
			v.Close()
		}
		return fmt.Errorf("there is a collection, or: %w", err)
	}
	if err != nil {
		return err
	}
	defer v.Close()
	return m.Diff(v)
}

// settle finds the model that each collection equals, and continues from it. It returns an error if
// there is none.
func (x *faultyStore) settle(among func(*faultyCollection) []*storetest.Model) error {
	for _, c := range x.colls {
		var diffs []error
		found := false
		models := among(c)
		for i := len(models) - 1; i >= 0 && !found; i-- { // mostly it is one of the newest
			diff := x.diff(c, models[i])
			if found = diff == nil; found {
				c.now, c.maybe = models[i], nil
				if c.now != nil {
					c.now = c.now.Clone()
				}
			} else if text := diff.Error(); len(diffs) < 3 || !strings.HasPrefix(text, "State: ") {
				diffs = append(diffs, diff)
			}
		}
		if !found {
			return fmt.Errorf("%s is none of %d states that it may be: %w", c.id, len(models), errors.Join(diffs...))
		}
	}
	return nil
}

// bootID returns the ID by which the store recognises a boot of the machine.
func bootID(t *testing.T) string {
	t.Helper()
	b := harness.ReadFile(t, "/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// anotherBoot returns another ID of the same length.
func anotherBoot(id string) string { return strings.Repeat("x", len(id)) }
