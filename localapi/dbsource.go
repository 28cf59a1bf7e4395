package localapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/internal/spool"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Options are the settings of a Source on a database. The zero value works.
type Options struct {
	// Status, if not nil, adds the facts of the running agent. It must be safe for concurrent use.
	Status func(*Status)

	// StoreType and Verdict are copied to [StoreStatus].
	StoreType, Verdict string

	// SpoolDir is the directory for answers that are too large for memory, as unlinked files. If it
	// is empty or not writable, os.TempDir is used.
	SpoolDir string

	// Read, if not nil, is called when a query other than Status has read the database, before its
	// answer is delivered: a file that is closed then is not locked while a slow client reads.
	Read func()

	// Changed returns a channel that is closed at the next change of a collection. If it is nil,
	// changes can't be followed. Done is closed when no more changes will come; it ends the
	// followers.
	Changed func(collection string) <-chan struct{}
	Done    <-chan struct{}

	// Clock measures the age of the data; nil for the real one.
	Clock clock.PassiveClock
}

// FromDB answers from an open database, which the caller closes.
func FromDB(db store.DB, opts Options) Source {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &dbSource{db: db, opts: opts}
}

// dbSource is the Source on a database. It is safe for concurrent use.
type dbSource struct {
	db   store.DB
	opts Options
}

// Index implements [Source].
func (r *dbSource) Index(ctx context.Context, collections []string, index string) ([][]IndexValue, error) {
	var all [][]IndexValue
	var corrupt damage
	err := r.views(collections, func(v store.View) error {
		values := map[string]*IndexValue{}
		for e, err := range readable(ctx, &corrupt, r.entries(v, index)) {
			if err != nil {
				return err
			}
			x := values[e.value]
			if x == nil {
				x = &IndexValue{Value: e.value}
				values[e.value] = x
			}
			x.Objects++
			x.Bytes += int64(e.Bytes)
		}
		sorted := make([]IndexValue, 0, len(values))
		for _, value := range slices.Sorted(maps.Keys(values)) {
			sorted = append(sorted, *values[value])
		}
		all = append(all, sorted)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, corrupt.err()
}

type entry struct {
	value string
	store.Header
}

func (r *dbSource) entries(v store.View, index string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		if index == store.NamespaceIndex {
			// Keys start with their namespace, so one scan of the headers is enough.
			for h, err := range v.Headers("", "") {
				if !yield(entry{store.KeyNamespace(h.Key), h}, err) {
					return
				}
			}
			return
		}
		if err := checkIndex(v, index); err != nil {
			yield(entry{}, err)
			return
		}
		for e, err := range v.IndexEntries(index, "", store.IndexEntry{}) {
			var h store.Header
			if err == nil {
				h, err = r.header(v, index, e.Key)
			}
			if !yield(entry{e.Value, h}, err) {
				return
			}
		}
	}
}

// Keys implements [Source].
func (r *dbSource) Keys(ctx context.Context, collections []string, q KeyQuery, each func(string, Key) error) error {
	var corrupt damage
	read := func(v store.View, sp *spool.Spool) error {
		n := 0
		for h, err := range readable(ctx, &corrupt, r.headers(v, q)) {
			if err != nil {
				return err
			}
			if !q.matches(h.Key, v.Info().Namespaced) {
				continue
			}
			b, err := json.Marshal(Key{Key: h.Key, UID: h.UID, ResourceVersion: h.RV, Bytes: h.Bytes})
			if err == nil {
				err = sp.Add(b, store.Record{})
			}
			if n++; err != nil || n == q.Limit {
				return err
			}
		}
		return nil
	}
	return r.spooled(ctx, collections, &corrupt, read, func(id string, head, _ []byte) error {
		var k Key
		if err := json.Unmarshal(head, &k); err != nil {
			return fmt.Errorf("spool: %w", err)
		}
		return each(id, k)
	})
}

// spooled fills a spool for each of the collections with read, and calls each with all entries once
// the views are closed.
func (r *dbSource) spooled(
	ctx context.Context, collections []string, corrupt *damage,
	read func(store.View, *spool.Spool) error, each func(id string, head, object []byte) error,
) error {
	var spools []*spool.Spool
	defer func() {
		for _, sp := range spools {
			sp.Close()
		}
	}()
	err := r.views(collections, func(v store.View) error {
		sp := spool.New(r.opts.SpoolDir)
		spools = append(spools, sp)
		err := read(v, sp)
		sp.Finish(err)
		return err
	})
	if err != nil {
		return err
	}
	for i, sp := range spools {
		err := sp.Each(ctx, corrupt.skip(func(head, object []byte) error { return each(collections[i], head, object) }))
		if err != nil {
			return err
		}
	}
	return corrupt.err()
}

// matches reports whether a key has the namespace and the prefix of the name.
func (q KeyQuery) matches(key string, namespaced bool) bool {
	namespace := store.KeyNamespace(key)
	return (q.Namespace == "" || !namespaced || namespace == q.Namespace) &&
		strings.HasPrefix(strings.TrimPrefix(key, namespace+"/"), q.NamePrefix)
}

// headers yields the headers of the keys after q.After that q.Index selects. Others that the rest of
// q leaves out may be among them.
func (r *dbSource) headers(v store.View, q KeyQuery) iter.Seq2[store.Header, error] {
	if q.Index == "" {
		prefix := ""
		if q.Namespace != "" && v.Info().Namespaced {
			prefix = q.Namespace + "/" + q.NamePrefix
		}
		return v.Headers(prefix, q.After)
	}
	return func(yield func(store.Header, error) bool) {
		if err := checkIndex(v, q.Index); err != nil {
			yield(store.Header{}, err)
			return
		}
		for key, err := range v.IndexKeys(q.Index, q.Value, q.After) {
			var h store.Header
			if err == nil {
				h, err = r.header(v, q.Index, key)
			}
			if !yield(h, err) {
				return
			}
		}
	}
}

// Objects implements [Source].
func (r *dbSource) Objects(ctx context.Context, collections []string, q ObjectQuery, each func([]byte) error) error {
	selector, err := labels.Parse(q.LabelSelector)
	if err != nil {
		return fmt.Errorf("%w: label selector %q: %w", ErrBadQuery, q.LabelSelector, err)
	}
	var corrupt damage
	var buf []byte
	read := func(v store.View, sp *spool.Spool) error {
		for rec, err := range readable(ctx, &corrupt, records(v, q)) {
			if err == nil && len(q.Names) > 0 && !slices.Contains(q.Names, rec.Key[strings.LastIndexByte(rec.Key, '/')+1:]) {
				continue
			}
			matches := true
			if err == nil && !selector.Empty() {
				if matches, err = selects(selector, rec, &buf); corrupt.add(err) {
					continue
				}
			}
			if err == nil && matches {
				err = sp.Add(nil, rec)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return r.spooled(ctx, collections, &corrupt, read, func(_ string, _, object []byte) error { return each(object) })
}

func records(v store.View, q ObjectQuery) iter.Seq2[store.Record, error] {
	if q.Key == "" {
		prefix := ""
		if q.Namespace != "" && v.Info().Namespaced {
			prefix = q.Namespace + "/"
		}
		return v.Records(prefix, "")
	}
	return func(yield func(store.Record, error) bool) {
		o, err := v.Get(q.Key)
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("%s: %w", q.Key, store.ErrNotFound) // views adds the collection
		}
		yield(store.Record{Header: store.Header{Key: q.Key}, Object: o}, err)
	}
}

// selects reports whether a selector matches the labels of a record, which it decodes into buf.
func selects(selector labels.Selector, rec store.Record, buf *[]byte) (bool, error) {
	if rec.Object != nil {
		return selector.Matches(labels.Set(rec.Object.Labels())), nil
	}
	raw, err := rec.Raw(*buf)
	if err != nil {
		return false, err
	}
	*buf = raw
	o, err := object.FromValid(raw) // reads the metadata alone
	return err == nil && selector.Matches(labels.Set(o.Labels())), err
}

// readable records the corrupt items of a scan and yields the others, until an error, also of ctx.
func readable[T any](ctx context.Context, corrupt *damage, items iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range items {
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case corrupt.add(err):
				continue
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// views calls fn with a view of each of the collections, which are synced, and adds the collection's
// name to fn's errors. The views are closed when it returns.
func (r *dbSource) views(collections []string, fn func(store.View) error) error {
	if r.opts.Read != nil {
		defer r.opts.Read()
	}
	for _, id := range collections {
		if err := r.view(id, fn); err != nil {
			return err
		}
	}
	return nil
}

func (r *dbSource) view(id string, fn func(store.View) error) error {
	v, err := r.db.View(id)
	if err != nil {
		return err
	}
	defer v.Close()
	if !v.State().Synced {
		return fmt.Errorf("collection %s: %w", id, ErrNotSynced)
	}
	if err := fn(v); err != nil {
		return fmt.Errorf("collection %s: %w", id, err)
	}
	return nil
}

func checkIndex(v store.View, index string) error {
	names := append(append([]string{store.NamespaceIndex}, v.Indexes()...), v.Building()...)
	if slices.Contains(names, index) {
		return nil
	}
	return fmt.Errorf("%w: %q; there are %s", store.ErrNoIndex, index, strings.Join(names, ", "))
}

// header looks up a key from an index. Index and objects are one state, so a key that is only in
// the index is corruption.
func (r *dbSource) header(v store.View, index, key string) (store.Header, error) {
	h, err := v.Header(key)
	if errors.Is(err, store.ErrNotFound) {
		return h, &store.CorruptionError{
			Path: r.db.Stats().Path, Collection: v.Info().ID, Key: key,
			Reason: fmt.Sprintf("it is in index %s, but not stored", index),
		}
	}
	return h, err
}

// phaseStored is the phase of a collection that no agent updates.
const phaseStored = "stored"

// Status implements [Source].
func (r *dbSource) Status(ctx context.Context) (*Status, error) {
	infos, err := r.db.Collections()
	if err != nil {
		return nil, err
	}
	stats := r.db.Stats()
	status := &Status{
		Store: StoreStatus{
			Type: r.opts.StoreType, Path: stats.Path, FileBytes: stats.FileBytes, Verdict: r.opts.Verdict,
			EncryptionKey: stats.EncryptionKey, EncryptionDue: stats.EncryptionDue,
		},
		Collections: make([]Collection, 0, len(infos)),
	}
	for _, info := range infos {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := r.describe(info)
		if errors.Is(err, store.ErrNoCollection) {
			continue // dropped meanwhile
		}
		if err != nil {
			return nil, err
		}
		status.Collections = append(status.Collections, c)
	}
	if r.opts.Status != nil {
		r.opts.Status(status)
	}
	slices.SortFunc(status.Collections, func(a, b Collection) int { return cmp.Compare(a.ID, b.ID) })
	return status, nil
}

// describe returns the status of a stored collection. Corruption of one collection must not hide
// the others, so it becomes part of that collection's status.
func (r *dbSource) describe(info store.Info) (Collection, error) {
	v, err := r.db.View(info.ID)
	if errors.As(err, new(*store.CorruptionError)) {
		c := identity(info)
		c.Problem, c.Corrupt = err.Error(), true
		return c, nil
	}
	if err != nil {
		return Collection{}, err
	}
	defer v.Close()
	c, state := identity(v.Info()), v.State()
	if d, err := v.Description(); err == nil { // it is only for convenience
		c.Singular, c.ShortNames = d.Singular, d.ShortNames
	}
	c.Indexes, c.Building = append(c.Indexes, v.Indexes()...), v.Building()
	c.Synced, c.Objects, c.Bytes = state.Synced, state.Count, state.Bytes
	c.ResourceVersion, c.Cluster = state.RV, state.Cluster
	c.ListReason, c.LastList, c.SkippedEvents = string(state.ListReason), state.LastList, state.Skipped
	if state.Synced {
		if c.HistorySince, err = v.Horizon(); err != nil {
			c.Problem = err.Error() // a problem of the history only
		}
	}
	c.Proven = state.Proven()
	c.SetAge(clocks.AgeOf(clocks.Stamp{At: c.Proven}, clocks.Stamp{At: r.opts.Clock.Now()}))
	return c, nil
}

func identity(info store.Info) Collection {
	return Collection{
		ID: info.ID,
		Scope: Scope{
			Group: info.Group, Version: info.Version, Resource: info.Resource, Kind: info.Kind,
			Namespace: info.Namespace, LabelSelector: info.LabelSelector, FieldSelector: info.FieldSelector,
		},
		Phase: phaseStored, Indexes: []string{store.NamespaceIndex},
	}
}
