package kubeapi

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/kubeapi/internal/discovery"
	"github.com/snapcache/snapcache/kubeapi/internal/selector"
	"github.com/snapcache/snapcache/kubeapi/internal/table"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Policy determines the answers of a collection while the server can't be reached.
type Policy string

// The policies.
const (
	Serve  Policy = "serve"
	Warn   Policy = "warn"   // with a Warning header, which kubectl prints; the default
	Refuse Policy = "refuse" // as Warn, but requests fail once the state is older than MaxAge
)

// Staleness is the policy of a collection with its limit.
type Staleness struct {
	Policy Policy
	MaxAge time.Duration // for Refuse
}

// Freshness is how current a collection is.
type Freshness struct {
	// Connected is set while the server can be reached and the collection follows it.
	Connected bool

	// Since is when the collection was last known to be complete, and AtLeast how long ago that is for
	// certain, though the clock may be behind it. While Connected is set, they count only if the server does
	// not answer a probe.
	Since   time.Time
	AtLeast time.Duration
}

// Age returns how long ago the collection was last known to be complete, unless it is connected.
func (f Freshness) Age(now time.Time) clocks.Age {
	return clocks.AgeOf(clocks.Stamp{At: f.Since}, clocks.Stamp{At: now, Ran: f.AtLeast})
}

// Collection is a stored collection that is served. All functions must be safe for concurrent use.
type Collection struct {
	// Info and Description are about the stored objects, View is their newest state. The description has
	// the same address until it changes.
	Info        func() store.Info
	Description func() *store.Description
	View        func() (store.View, error)

	// State is the newest view's, which requests that wait for a resourceVersion need not open. A change
	// is in it before Changed reports the change.
	State func() store.State

	// Freshness reports how current the collection is; nil for a file, which no server changes.
	Freshness func() Freshness

	// Fault returns why the collection is not connected, in a few words; nil for a file.
	Fault func() string

	// Probe returns the server's current resourceVersion of the collection; nil for a file.
	Probe func(context.Context) (string, error)

	// Changed returns a channel that is closed at the next change of the checkpoint; nil for a file.
	Changed func() <-chan struct{}

	// Refresh reads the server's description of the resource again, unless it is known to be current. A
	// request that names something unknown waits for it. Nil for a file.
	Refresh func(context.Context)

	// Events has the collection's newest events; nil for a file.
	Events *Events

	// Flush makes the newest state durable; nil for a file. It is called before changes are sent from the
	// history.
	Flush func() error

	// Staleness returns the policy in force; nil for [Warn].
	Staleness func() Staleness
}

// AttributesIndex returns the index of a collection's history from which a watch with a selector can
// continue, see [store.Index].History. Without it such watches end with 410 once their
// resourceVersion is no longer in [Events]. The history keeps attributes while a client may come back
// for them, as far as the collection's events are concerned: they cost as much as the rest of a change.
func AttributesIndex(info store.Info, d store.Description, events *Events) store.Index {
	f := selector.FieldsOf(info, d)
	return store.Index{Name: "attributes", Spec: f.Spec(), History: true, Wanted: events.attributesWanted, Func: func(o *object.Object) []string {
		values, _ := f.Values(o) // never fails: objects of a collection that is served are JSON
		return values
	}}
}

// served is a collection as it is described to clients.
type served struct {
	*Collection
	info    store.Info
	desc    *store.Description
	fields  selector.Fields
	asked   *selector.Pool    // of requests
	scope   selector.Selector // of the collection
	printer *table.Printer
	dropped []string // paths that the collection does not have
	typed   []byte   // how the JSON of an object with its kind begins
	probes  probes
	settled atomic.Pointer[string] // the server's resourceVersion that a read has waited for last, see Server.settle

	attributes string // the spec of AttributesIndex
}

func newServed(c *Collection, info store.Info, desc *store.Description) (*served, error) {
	s := &served{
		Collection: c, info: info, desc: desc, fields: selector.FieldsOf(info, *desc), printer: table.For(info, *desc),
		dropped: object.ParsePrune(info.Transform).Paths(),
		typed:   []byte(`{"kind":"` + info.Kind + `","apiVersion":"` + info.APIVersion() + `",`),
	}
	s.attributes, s.asked = s.fields.Spec(), selector.NewPool(s.fields)
	var err error
	s.scope, err = s.fields.Parse(info.LabelSelector, info.FieldSelector)
	return s, err
}

// catalog has the served collections. It is safe for concurrent use.
type catalog struct {
	collections func() []*Collection

	mu      sync.Mutex
	known   map[*Collection]*served
	ordered []*served // the values of known, by ID; nil if it has to be made

	docs         *discovery.Documents // of these two; nil if there are none yet
	documented   []*served
	undocumented []schema.GroupVersion
}

// all returns the collections as they are now, ordered by ID. The caller must not change the slice.
func (c *catalog) all() ([]*served, error) {
	list := c.collections()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range list {
		info, desc := x.Info(), x.Description()
		if s := c.known[x]; s != nil && s.info == info && s.desc == desc {
			continue
		}
		s, err := newServed(x, info, desc)
		if err != nil {
			return nil, err
		}
		c.known[x], c.ordered = s, nil
	}
	if len(c.known) > len(list) {
		maps.DeleteFunc(c.known, func(x *Collection, _ *served) bool { return !slices.Contains(list, x) })
		c.ordered = nil
	}
	if c.ordered == nil {
		c.ordered = slices.SortedFunc(maps.Values(c.known), func(a, b *served) int { return strings.Compare(a.info.ID, b.info.ID) })
	}
	return c.ordered, nil
}

// of returns the collections of a resource, ordered by ID, and whether its group is known as one that
// is built in, not made by a CustomResourceDefinition.
func (c *catalog) of(gvr schema.GroupVersionResource) (found []*served, builtIn bool, err error) {
	all, err := c.all()
	builtIn = gvr.Group == ""
	for _, s := range all {
		if s.info.Group != gvr.Group {
			continue
		}
		builtIn = builtIn || !s.desc.Custom
		if s.info.GVR() == gvr {
			found = append(found, s)
		}
	}
	return found, builtIn, err
}
