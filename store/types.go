package store

import (
	"cmp"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/object"
)

// Info is what a collection is a copy of. A checkpoint has a meaning only under
// the Info it was made with (see [Info.Scope]).
type Info struct {
	// ID names the collection in its store: "pods", "deployments.apps",
	// "pods@shop" for one namespace.
	ID string `json:"id"`

	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`

	// Namespaced says whether the resource's objects live in namespaces.
	Namespaced bool `json:"namespaced"`

	// Namespace limits the collection to one namespace; empty for all.
	Namespace string `json:"namespace,omitempty"`

	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`

	// Transform is [object.Prune.ID] of what is dropped on the way in.
	Transform string `json:"transform,omitempty"`

	// Encoding is how the objects are encoded; empty is JSON.
	Encoding string `json:"encoding,omitempty"`
}

// Scope is the part of the identity that decides whether a persisted checkpoint
// may be used: two equal scopes watch the same set of bytes.
type Scope struct {
	GVR                          schema.GroupVersionResource
	Namespace                    string
	LabelSelector, FieldSelector string
	Transform                    string
	Encoding                     string
}

// GVR returns the group, version and resource.
func (i Info) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: i.Group, Version: i.Version, Resource: i.Resource}
}

// APIVersion returns group and version as objects carry it, such as "apps/v1".
func (i Info) APIVersion() string {
	return schema.GroupVersion{Group: i.Group, Version: i.Version}.String()
}

// Scope returns what a checkpoint of this collection depends on.
func (i Info) Scope() Scope {
	return Scope{i.GVR(), i.Namespace, i.LabelSelector, i.FieldSelector, i.Transform, i.Encoding}
}

// Checkpoint says up to where a collection is complete and when that was proven.
type Checkpoint struct {
	// RV is the resourceVersion: every event at or below it is in the objects.
	RV string `json:"rv"`

	// Cluster is the identity of the cluster that RV belongs to.
	Cluster string `json:"cluster"`

	// Schema tells the form that the objects were served in from every other; empty
	// where it is not known, or never changes.
	Schema string `json:"schema,omitempty"`

	// LastEvent, LastBookmark and LastList are when the newest event, bookmark and
	// complete list that the checkpoint covers arrived, by the local clock.
	LastEvent    time.Time `json:"lastEvent,omitzero"`
	LastBookmark time.Time `json:"lastBookmark,omitzero"`
	LastList     time.Time `json:"lastList,omitzero"`

	// ListReason is why the newest list was made, "initial" for the first.
	ListReason string `json:"listReason,omitempty"`

	// Skipped is set if the watch brought events at or below RV that were left out, since
	// their objects were of another type than the collection's. No watch resumes from such a
	// checkpoint; the next complete list ends it.
	Skipped bool `json:"skipped,omitempty"`

	// Newest are the keys of objects with the highest resourceVersions at or below RV,
	// highest first, as far as they are known; empty ones come last. A server that has
	// these otherwise has another history than the one that RV is of.
	Newest [NewestKeys]string `json:"newest,omitzero"`
}

// NewestKeys is how many keys [Checkpoint.Newest] has room for.
const NewestKeys = 3

// Proven is when the collection was last known to be complete: the newest of its
// times.
func (c Checkpoint) Proven() time.Time {
	t := c.LastEvent
	for _, u := range []time.Time{c.LastBookmark, c.LastList} {
		if u.After(t) {
			t = u
		}
	}
	return t
}

// State is a collection's checkpoint with its totals.
type State struct {
	Checkpoint

	// Synced says that a complete list is in the collection. Until then it must
	// not be read as if it were whole.
	Synced bool `json:"synced"`

	// Count is the number of objects, Bytes the length of their JSON. Objects that are held in
	// memory in their Go form, and not encoded, are not part of Bytes.
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

// Change sets one key to an object, or deletes it where Object is nil.
type Change struct {
	Key    string
	Object *object.Object

	// RV is the resourceVersion of a deletion, for the history; empty where it is not
	// known, as for a key that a complete list does not have. See [Event].
	RV string
}

// Batch is changes and the checkpoint that holds once they are applied. Keys in
// Changes are unique. A zero Checkpoint leaves the stored one as it is.
type Batch struct {
	Changes    []Change
	Checkpoint Checkpoint
}

// Header is what a record tells without its object being decoded.
type Header struct {
	Key   string
	UID   string
	RV    string
	Bytes int // length of the object's JSON
}

// IndexFunc returns the values under which an index files an object.
type IndexFunc func(*object.Object) []string

// Index is a named index function. Spec tells two definitions of one name apart:
// where it differs from the stored one the index is built anew. Under one Spec,
// Func must always return the same values for the same object.
type Index struct {
	Name string
	Spec string
	Func IndexFunc
}

// DB is a set of collections. It is safe for concurrent use.
type DB interface {
	// Open returns the collection info.ID, creating it where it is new. Where the
	// stored collection has another scope, its objects and checkpoint stay
	// readable as they are and Collection.Info tells the stored scope, until a
	// Replacement made with the new one is committed; if it never was synced, it
	// is emptied.
	//
	// Its indexes become those that are given. An index that is not given any more, or
	// has another Spec, is not readable from then on. One that is new is readable at
	// once where there are no objects. Otherwise it may be built in the background,
	// while the collection is used in every way: until it is complete, which it becomes
	// between one view and the next, its readers get ErrIndexBuilding. A store that is
	// closed meanwhile, or that crashes, goes on when the collection is opened again.
	//
	// The durable store builds in the background, since it has to read all objects from
	// disk. The one in memory builds an index before Open returns: it has them at hand.
	Open(info Info, indexes ...Index) (Collection, error)

	// Collections returns what is stored, ordered by ID.
	Collections() ([]Info, error)

	// View returns a view of a stored collection, for readers that don't keep the
	// collection open. ErrNoCollection where there is none.
	View(id string) (View, error)

	// Drop deletes a collection and all its objects, if it is there. Handles that
	// are open answer ErrNoCollection from then on.
	Drop(id string) error

	// Flush makes all that was applied durable. Where it fails, what was applied
	// stays readable and is tried again.
	Flush() error

	// Stats returns sizes and write totals.
	Stats() Stats

	// Close ends the store. Open views keep it waiting.
	Close() error
}

// Stats are a store's totals since it was opened.
type Stats struct {
	Path         string // of the file; empty where there is none
	FileBytes    int64
	Commits      int64
	CommitTime   time.Duration // in write transactions
	SyncTime     time.Duration // the part of it spent on writing and syncing the file
	PagesWritten int64

	// Compactions are rewritings of the file without the space that was free in it;
	// CompactedBytes is by how much they made it smaller together.
	Compactions    int64
	CompactTime    time.Duration
	CompactedBytes int64

	// EncryptionKey is the id of the key that the file is encrypted with; empty for a
	// file in clear. EncryptionDue says that it is to have another, or none, and waits
	// to be rewritten.
	EncryptionKey string
	EncryptionDue bool

	FlushError error // why the newest flush failed; nil where it did not

	// ReadFaults is how often a page of the file could not be read, and ReadError is the
	// newest of them; nil for none.
	ReadFaults int64
	ReadError  error
}

// Collection is one kind of object in one scope. One writer at a time may call
// Apply and Replace; everything else is safe for concurrent use.
type Collection interface {
	// Info returns what the stored objects are a copy of. See DB.Open.
	Info() Info

	// State returns checkpoint and totals as of the newest Apply or Commit.
	State() State

	// Apply makes the batch's changes and checkpoint visible as one unit: after an
	// error none of it is. The store makes them durable, as one unit too, within its
	// flush interval or at DB.Flush. ErrScope where the collection waits for a
	// Replacement to bring it to the scope it was opened with.
	Apply(Batch) error

	// Replace starts to bring the collection to what a complete list says, under the
	// scope that Open was given. What is applied is a difference: keys that are not
	// named stay.
	Replace() (Replacement, error)

	// View returns the newest consistent state. The caller must close it, soon: an
	// open view keeps space from being reused.
	View() (View, error)
}

// Replacement collects the difference between a collection and a complete list.
// Until Commit nothing of it is visible; a crash before Commit leaves the old
// state. It is for one goroutine.
type Replacement interface {
	// Apply adds changes. A key may come again; the newest change wins.
	Apply([]Change) error

	// Commit makes all changes and the checkpoint visible and durable as one unit and
	// marks the collection synced.
	Commit(Checkpoint) error

	// Abort forgets the changes. Abort after Commit or Abort does nothing.
	Abort() error
}

// View is one consistent state of a collection. It is for one goroutine, and
// nothing that its methods return may be used after Close except objects, which
// are copies.
//
// Every listing can be taken in pages: what it is given as after is the position
// behind which it goes on, which is the last key, or index entry, that was seen. The
// zero position is the beginning. A position means the same in every view: in the
// view it came from, listing goes on with nothing left out and nothing twice; in a
// newer view it goes on in the newer state, of which what changed before the position
// is not seen any more. What is at a position need not exist (any more).
type View interface {
	Info() Info
	State() State

	// Get returns the object at key, or ErrNotFound, or a *CorruptionError.
	Get(key string) (*object.Object, error)

	// Header returns what is known of key without decoding its object.
	Header(key string) (Header, error)

	// Objects iterates over the objects whose keys start with prefix and come after
	// the key after, in key order. An error ends the iteration, except that a
	// damaged record is reported as *CorruptionError and skipped.
	Objects(prefix, after string) iter.Seq2[*object.Object, error]

	// Headers is Objects without decoding.
	Headers(prefix, after string) iter.Seq2[Header, error]

	// Indexes returns the names of the indexes besides NamespaceIndex, in order: those
	// that can be read.
	Indexes() []string

	// Building returns the names of the indexes that are being built, in order. What
	// reads one of them gets ErrIndexBuilding, of one that is not there at all
	// ErrNoIndex.
	Building() []string

	// IndexKeys iterates over the keys filed under value that come after the key
	// after, in order.
	IndexKeys(index, value, after string) iter.Seq2[string, error]

	// IndexEntries iterates over the (value, key) pairs whose values start with prefix
	// and that come after the pair after, in their order: by value, then by key. A pair
	// without a key comes before all keys of its value, so that one may begin at a value
	// as well; one whose value ends in a zero byte comes behind all keys of the value
	// before that byte, so that one may leap from value to value.
	IndexEntries(index, prefix string, after IndexEntry) iter.Seq2[IndexEntry, error]

	// Horizon returns where the collection's history begins.
	Horizon() (Horizon, error)

	// Changes iterates over what changed after the resourceVersion since, in
	// ascending order of resourceVersions: the newest change of each key, and each
	// deletion. To go on later, ask since State().RV of this view: an entry past it
	// may come again then, none is left out. The error is a *TooOldError where the
	// history does not reach back to since, and wraps ErrFuture where since is past
	// the checkpoint. A damaged entry is reported as *CorruptionError and skipped:
	// what changed can't be told completely then.
	Changes(since string) iter.Seq2[Event, error]

	// Close ends the view. Closing twice does nothing.
	Close()
}

// IndexEntry is one key filed under one value of an index.
type IndexEntry struct{ Value, Key string }

// Compare returns which of two entries comes first in an index: -1 for e, 1 for
// other, 0 where they are equal.
func (e IndexEntry) Compare(other IndexEntry) int {
	if c := cmp.Compare(e.Value, other.Value); c != 0 {
		return c
	}
	return cmp.Compare(e.Key, other.Key)
}

// NamespaceIndex is the index every collection has: by namespace, "" for
// cluster-scoped objects.
const NamespaceIndex = "namespace"
