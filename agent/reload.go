package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/systemd"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// askTimeout limits the lookup of all resources that are new in a configuration. If the server
	// can't be asked, they are accepted unchecked.
	askTimeout = 10 * time.Second

	// applyTimeout limits how long a reload waits until all changed collections run by their new
	// specs. A collection that takes longer changes later.
	applyTimeout = 30 * time.Second
)

// reloadResult is the result of a reload: the changes, or why it was refused.
type reloadResult struct {
	changes []string
	err     error
}

// reload requests a reload and returns its changes. If the error is [localapi.ErrRefused], the
// previous configuration stays in force as a whole. If ctx ends, the reload may still take place.
func (a *Agent) reload(ctx context.Context) ([]string, error) {
	done := make(chan reloadResult, 1)
	select {
	case a.settings.requests <- done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case r := <-done:
		return r.changes, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// reloadsOn serves requests and signals for reloads, one after the other, until ctx ends.
func (a *Agent) reloadsOn(ctx context.Context, cluster *upstream.Cluster, supervisors *collection.Supervisors) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.opts.Hangup:
			_, _ = a.reloadOnce(ctx, cluster, supervisors) // the result is logged, and in the status
		case done := <-a.settings.requests:
			changes, err := a.reloadOnce(ctx, cluster, supervisors)
			done <- reloadResult{changes, err}
		}
	}
}

// reloadOnce reads the configuration again and applies it. It returns and logs the result, and
// notifies systemd. Requests that wait for a retry are sent now: that may be the reason for the reload.
func (a *Agent) reloadOnce(ctx context.Context, cluster *upstream.Cluster, supervisors *collection.Supervisors) ([]string, error) {
	a.retries.Ring()
	ready := a.watchdog.ready.Load()
	if ready {
		a.tell(systemd.Reloading("reading the configuration again"))
	}
	changes, err := a.apply(ctx, cluster, supervisors)
	a.settings.note(err)
	if err != nil {
		a.log.Error(localapi.ConfigRefused+"; the previous one stays in force", "problem", err.Error())
	} else {
		a.log.Info("configuration reloaded", "changes", strings.Join(changes, "; "))
	}
	if ready {
		a.tell(systemd.Ready())
	}
	a.reportStatus(ctx)
	return changes, err
}

// joinLines returns the text of an error with its lines joined by "; ".
func joinLines(err error) string {
	return strings.Join(strings.Split(strings.TrimSpace(err.Error()), "\n"), "; ")
}

// apply reads the newest configuration, puts it in force and returns the changes. Its errors are
// [localapi.ErrRefused]: nothing has changed then.
func (a *Agent) apply(ctx context.Context, cluster *upstream.Cluster, supervisors *collection.Supervisors) ([]string, error) {
	if a.opts.Load == nil {
		return nil, fmt.Errorf("%w: this agent can't read it again: restart it", localapi.ErrRefused)
	}
	next, err := a.opts.Load()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", localapi.ErrRefused, err)
	}
	changes, err := compare(a.config(), next)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", localapi.ErrRefused, err)
	}
	specs := collection.Specs(next)
	if err := a.checkNew(ctx, cluster, specs); err != nil {
		return nil, fmt.Errorf("%w: %w", localapi.ErrRefused, err)
	}
	a.applySettings(next)
	return append(changes, a.applySpecs(ctx, supervisors, specs)...), nil
}

// compare returns the changed fields, without the collections. It returns an error if a running
// agent can't change one of them.
func compare(before, next *config.AgentConfiguration) (changes []string, err error) {
	var errs []error
	for _, field := range slices.Concat(
		collection.Changed("kubeconfig", before.Kubeconfig, next.Kubeconfig),
		collection.Changed("fallbackContext", before.FallbackContext, next.FallbackContext),
		collection.Changed("store.type", before.Store.Type, next.Store.Type),
		collection.Changed("store.path", before.Store.Path, next.Store.Path),
		collection.Changed("store.maxSize", before.Store.MaxSize, next.Store.MaxSize), // the file is mapped at that size
		collection.Changed("encryption", before.Encryption, next.Encryption),
		collection.Changed("restore.seed", before.Restore.Context(), next.Restore.Context()),
		collection.Changed("snapshots.dir", before.Snapshots.Dir, next.Snapshots.Dir),
		collection.Changed("localAPI.socket", before.LocalAPI.Socket, next.LocalAPI.Socket),
		collection.Changed("kubernetesAPI", before.KubernetesAPI, next.KubernetesAPI),
		collection.Changed("metrics", before.Metrics, next.Metrics),
		collection.Changed("log.format", before.Log.Format, next.Log.Format),
	) {
		errs = append(errs, fmt.Errorf("%s can't change while the agent runs: restart it (systemctl restart snapcache), or take the change back", field))
	}
	for _, field := range slices.Concat(
		collection.Changed("resumeJitter", before.ResumeJitter, next.ResumeJitter),
		collection.Changed("relist", before.Relist, next.Relist),
		collection.Changed("verify", before.Verify, next.Verify),
		collection.Changed("store.commitInterval", before.Store.CommitInterval, next.Store.CommitInterval),
		collection.Changed("history", before.History, next.History),
		collection.Changed("snapshots", before.Snapshots, next.Snapshots),
		collection.Changed("restore", before.Restore, next.Restore),
		collection.Changed("log.level", before.Log.Level, next.Log.Level),
		collection.Changed("health", before.Health, next.Health),
		collection.Changed("secrets", before.Secrets, next.Secrets),
	) {
		changes = append(changes, "changed "+field)
	}
	return append(changes, collection.ChangedStaleness(before, next)...), errors.Join(errs...)
}

// applySettings puts a configuration in force, all but its collections.
func (a *Agent) applySettings(next *config.AgentConfiguration) {
	a.settings.set(next, a.clock.Now())
	if a.opts.Level != nil {
		a.opts.Level.Set(next.Log.Level.Level())
	}
	if a.db.Bolt != nil {
		a.db.Bolt.Adjust(next.Store.CommitInterval.Duration, next.History.Retention.Duration, next.History.MaxSize.Value())
	}
}

// byID returns the collections by their IDs.
func (a *Agent) byID() map[string]*collection.Collection {
	byID := map[string]*collection.Collection{}
	for _, c := range a.all() {
		byID[c.ID] = c
	}
	return byID
}

// checkNew returns an error if the server does not have a resource that is new in specs. If the
// server can't be asked, the resource is accepted, and its collection waits for it, as at a start.
func (a *Agent) checkNew(ctx context.Context, cluster *upstream.Cluster, specs []collection.Spec) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	byID := a.byID()
	var wrong []error
	for _, w := range specs {
		name := w.Entry.Resource
		if c := byID[w.ID]; c != nil && c.Desired().Entry.Resource.Version == name.Version {
			continue
		}
		r, err := cluster.Resolve(ctx, name.Resource, name.Version, name.Group)
		switch {
		case errors.As(err, new(*upstream.NoResourceError)):
			wrong = append(wrong, fmt.Errorf("%s.resource: %w", w.Field, err))
		case err == nil && w.Namespace != "" && !r.Namespaced:
			wrong = append(wrong, fmt.Errorf("%s.namespaces: %s live in no namespace: remove the field", w.Field, r.GVR.Resource))
		}
	}
	return errors.Join(wrong...)
}

// applySpecs adds, changes and removes collections, and returns these changes. It waits for
// changed collections no longer than applyTimeout.
func (a *Agent) applySpecs(ctx context.Context, supervisors *collection.Supervisors, specs []collection.Spec) []string {
	var added, changed, removed []string
	var collections, started []*collection.Collection
	var applied []<-chan struct{}
	byID := a.byID()
	for _, w := range specs {
		c := byID[w.ID]
		delete(byID, w.ID)
		if c == nil {
			c = collection.New(w, a.collectionOptions(true))
			started = append(started, c)
			added = append(added, "added "+c.ID)
		} else if fields := c.Desired().Differs(w); len(fields) > 0 {
			applied = append(applied, c.Configure(w))
			changed = append(changed, fmt.Sprintf("changed %s: %s", c.ID, strings.Join(fields, ", ")))
		}
		collections = append(collections, c)
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		supervisors.Stop(byID[id])
		a.damages.Forget(id)
		if err := errors.Join(a.db.Drop(id), byID[id].Close()); err != nil {
			byID[id].Log.Error("could not drop a collection that is no longer configured; the next start retries", "error", err)
		}
		removed = append(removed, "removed "+id)
	}
	a.collections.Store(&collections)
	for _, c := range byID {
		c.Tracker.Wake()
		c.EndWatches()
	}
	for _, c := range started {
		supervisors.Start(c)
	}
	limited, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	for _, done := range applied {
		select {
		case <-done:
		case <-limited.Done():
		}
	}
	return slices.Concat(removed, changed, added)
}
