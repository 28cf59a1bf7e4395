package collection

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/config"
)

// Spec is the configuration of a collection: a resource in one namespace scope.
type Spec struct {
	ID        string
	Namespace string // empty for all
	Field     string // its place in the configuration, for errors
	Entry     config.Resource
	Jitter    time.Duration // the longest random delay of a resumed watch
	Relist    config.Relist
}

// Specs returns the specs of the collections that a configuration names, in its order.
func Specs(cfg *config.AgentConfiguration) []Spec {
	var all []Spec
	for i, r := range cfg.Resources {
		for _, ns := range r.Scopes() {
			all = append(all, Spec{
				ID: r.Resource.CollectionID(ns), Namespace: ns, Field: fmt.Sprintf("resources[%d]", i),
				Entry: r, Jitter: cfg.ResumeJitter.Duration, Relist: cfg.Relist,
			})
		}
	}
	return all
}

// Differs returns the names of the fields that differ between two specs. It ignores the place in
// the configuration, and the jitter, which matters only at the next start.
func (s Spec) Differs(to Spec) []string {
	return slices.Concat(
		Changed("version", s.Entry.Resource.Version, to.Entry.Resource.Version),
		Changed("labelSelector", s.Entry.LabelSelector, to.Entry.LabelSelector),
		Changed("fieldSelector", s.Entry.FieldSelector, to.Entry.FieldSelector),
		Changed("indexes", s.Entry.Indexes, to.Entry.Indexes),
		Changed("transform", s.Entry.Transform, to.Entry.Transform),
		Changed("relist", s.Relist, to.Relist),
	)
}

// Changed returns the name of a field of the configuration if its value differs.
func Changed(field string, was, now any) []string {
	if equality.Semantic.DeepEqual(was, now) {
		return nil
	}
	return []string{field}
}

// ChangedStaleness returns a line for each resource whose staleness differs. It is no part of a spec:
// requests read it from the configuration in force, and the collection continues.
func ChangedStaleness(was, now *config.AgentConfiguration) (changes []string) {
	before := map[schema.GroupResource]config.Staleness{}
	for _, r := range was.Resources {
		before[r.Resource.GroupResource()] = r.Staleness
	}
	for _, r := range now.Resources {
		name := r.Resource.GroupResource()
		if s, ok := before[name]; ok && s != r.Staleness {
			changes = append(changes, "changed "+name.String()+": staleness")
		}
	}
	return changes
}
