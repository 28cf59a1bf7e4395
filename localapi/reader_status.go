package localapi

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/snapcache/snapcache/store"
)

// phaseStored is the phase of a collection that no agent updates.
const phaseStored = "stored"

// Status implements [Source].
func (r *reader) Status(ctx context.Context) (*Status, error) {
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
func (r *reader) describe(info store.Info) (Collection, error) {
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
	c.ListReason, c.LastList, c.SkippedEvents = state.ListReason, state.LastList, state.Skipped
	if state.Synced {
		if c.HistorySince, err = v.Horizon(); err != nil {
			c.Problem = err.Error() // a problem of the history only
		}
	}
	if c.Proven = state.Proven(); !c.Proven.IsZero() {
		// If the clock was set back, the age is 0.
		c.AgeSeconds = max(0, r.opts.Clock.Since(c.Proven).Seconds())
	}
	return c, nil
}

func identity(info store.Info) Collection {
	return Collection{
		ID: info.ID, Group: info.Group, Version: info.Version, Resource: info.Resource, Kind: info.Kind,
		Namespace: info.Namespace, LabelSelector: info.LabelSelector, FieldSelector: info.FieldSelector,
		Phase: phaseStored, Indexes: []string{store.NamespaceIndex},
	}
}
