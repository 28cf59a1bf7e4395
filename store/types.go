package store

import (
	"cmp"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/object"
)

// Info identifies the objects that a collection is a copy of. A checkpoint is valid only under the
// Info it was made with (see [Info.Scope]).
type Info struct {
	// ID names the collection in its store: "pods", "deployments.apps",
	// "pods@shop" for one namespace.
	ID string `json:"id"`

	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`

	// Namespaced is set if the resource's objects are in namespaces.
	Namespaced bool `json:"namespaced"`

	// Namespace limits the collection to one namespace; empty for all.
	Namespace string `json:"namespace,omitempty"`

	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`

	// Transform is [object.Prune.ID] of the fields that are dropped before storing.
	Transform string `json:"transform,omitempty"`

	// Encoding is the encoding of the objects; empty is JSON.
	Encoding string `json:"encoding,omitempty"`
}

// Scope is the part of an Info that decides whether a stored checkpoint may be used: two equal
// scopes watch the same set of bytes.
type Scope struct {
	GVR                          schema.GroupVersionResource
	Kind                         string
	Namespaced                   bool
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

// Scope returns the part of the Info that a checkpoint of this collection depends on.
func (i Info) Scope() Scope {
	return Scope{i.GVR(), i.Kind, i.Namespaced, i.Namespace, i.LabelSelector, i.FieldSelector, i.Transform, i.Encoding}
}

// Checkpoint is the resourceVersion up to which a collection is complete, and when that was proven.
type Checkpoint struct {
	// RV is the resourceVersion: every event at or below it is in the objects.
	RV string `json:"rv"`

	// Cluster is the identity of the cluster that RV belongs to.
	Cluster string `json:"cluster"`

	// Schema is a digest of the form that the objects were served in; empty if it is not known,
	// or never changes.
	Schema string `json:"schema,omitempty"`

	// LastEvent, LastBookmark and LastList are when the newest event, bookmark and
	// complete list that the checkpoint covers arrived, by the local clock.
	LastEvent    time.Time `json:"lastEvent,omitzero"`
	LastBookmark time.Time `json:"lastBookmark,omitzero"`
	LastList     time.Time `json:"lastList,omitzero"`

	// ListReason is the reason of the newest list.
	ListReason Reason `json:"listReason,omitempty"`

	// Skipped is set if events of the watch at or below RV were left out, because their objects
	// were of another type than the collection's. No watch resumes from such a checkpoint; the
	// next complete list clears it.
	Skipped bool `json:"skipped,omitempty"`

	// Newest are the keys of objects with the highest resourceVersions at or below RV, highest
	// first, as far as they are known; empty ones come last. A server with other versions of
	// these objects at RV has another history than RV's.
	Newest [NewestKeys]string `json:"newest,omitzero"`
}

// NewestKeys is the length of [Checkpoint.Newest].
const NewestKeys = 3

// Proven returns when the collection was last known to be complete: the newest of the checkpoint's
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

// NoneAfter moves the times that are after now back to it: a wrong clock has made them, and Proven would
// not move on before their date.
func (c *Checkpoint) NoneAfter(now time.Time) {
	for _, t := range []*time.Time{&c.LastEvent, &c.LastBookmark, &c.LastList} {
		if t.After(now) {
			*t = now.UTC()
		}
	}
}

// State is a collection's checkpoint with its totals.
type State struct {
	Checkpoint

	// Synced is set by the commit of a complete list. Until then the collection must not be read
	// as if it were complete.
	Synced bool `json:"synced"`

	// Count is the number of objects, Bytes the length of their JSON. Objects that are held in
	// memory in their Go form, and not encoded, are not part of Bytes.
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

// Change sets one key to an object, or deletes the key if Object is nil.
type Change struct {
	Key    string
	Object *object.Object

	// RV is the resourceVersion of a deletion, for the history; empty if it is not known, as
	// for a key that a complete list lacks. See [Event].
	RV string
}

// Batch is changes and the checkpoint that holds once they are applied. Keys in
// Changes are unique. A zero Checkpoint leaves the stored one as it is.
type Batch struct {
	Changes    []Change
	Checkpoint Checkpoint
	Gap        *Gap // nil for none

	// Read has the reads from which the changes were computed, nil for none: a store on disk need not
	// search for these keys again, or decode their objects. It is ignored if the collection has changed since.
	Read Lookup
}

// Gap means that a batch has only the newest of several changes of an object. Then the collection never
// was in the states from First on and before Last, two resourceVersions. An empty First stands for the
// checkpoint before, whose own state is known, an empty Last for the batch's: the gap of every list.
type Gap struct{ First, Last string }

// Header is the metadata of a record, which is read without decoding the object.
type Header struct {
	Key   string
	UID   string
	RV    string
	Bytes int // length of the object's JSON
}

// Record is a stored object that is not decoded. It does not depend on its view, or on the store
// being open.
type Record struct {
	Header

	// Object is the object, if the store holds it in memory. Stored and Decode are nil then.
	Object *object.Object

	// Stored is the object as it is stored. Decode returns the object's bytes, in buf if they fit;
	// it can decode all records of one view and is safe for concurrent use.
	Stored []byte
	Decode func(key string, stored, buf []byte) ([]byte, error)
}

// Raw returns the bytes of [object.Object.Raw], in buf if they are decoded and fit. The error is a
// *CorruptionError.
func (r Record) Raw(buf []byte) ([]byte, error) {
	if r.Object != nil {
		return r.Object.Raw(), nil
	}
	return r.Decode(r.Key, r.Stored, buf)
}

// Decoded returns the object. The error is a *CorruptionError.
func (r Record) Decoded() (*object.Object, error) {
	if r.Object != nil {
		return r.Object, nil
	}
	raw, err := r.Raw(nil)
	if err != nil {
		return nil, err
	}
	o, err := object.FromValid(raw)
	if err != nil {
		return nil, &CorruptionError{Key: r.Key, Reason: err.Error()}
	}
	return o, nil
}

// IndexFunc returns the values under which an index files an object.
type IndexFunc func(*object.Object) []string

// Index is a named index function. Spec identifies its definition: if Spec differs from the stored
// one, the index is built again. Under one Spec, Func must always return the same values for the
// same object.
type Index struct {
	Name string
	Spec string
	Func IndexFunc

	// History means that the values are not indexed: they are the attributes of an object, and the
	// history keeps its earlier ones, see [Event.AttributesAt]. View does not return such an
	// index. A collection has at most one.
	History bool

	// Wanted reports whether the history is to keep values from the next batch on, nil for always;
	// keeps is set if it does so already. The store calls it for each batch, and must not be used by
	// it. Of changes that come while they are not wanted, no values are known.
	Wanted func(keeps bool) bool
}

// DB is a set of collections. It is safe for concurrent use.
type DB interface {
	// Open returns the collection info.ID, creating it if it is new. The caller owns it until
	// Collection.Close, or until it is dropped: meanwhile Open returns an *InUseError. Readers
	// use View, which needs no ownership.
	//
	// If the stored collection has another scope, its objects and checkpoint stay readable and
	// Collection.Info returns the stored scope, until a Replacement under the new scope is
	// committed; if it never was synced, it is emptied.
	//
	// The collection gets exactly the given indexes. A stored index that is not among them, or has
	// another Spec, is not readable from then on. A new index over stored objects is built before
	// Open returns in memory, and in the background on disk, also over restarts: until it is
	// complete, which happens between one view and the next, a read of it scans the objects.
	Open(info Info, indexes ...Index) (Collection, error)

	// Owner returns the owner of a collection, nil if the collection is not open.
	Owner(id string) *Owner

	// Collections returns the stored collections, ordered by ID.
	Collections() ([]Info, error)

	// View returns a view of a stored collection, for readers that don't own it. It returns
	// ErrNoCollection if there is none.
	View(id string) (View, error)

	// Drop deletes a collection and all its objects, if it exists. It ends the ownership: the
	// methods of the Collection return ErrNoCollection from then on.
	Drop(id string) error

	// Flush makes all applied batches durable. If it fails, they stay readable, and the store
	// retries.
	Flush() error

	// Stats returns sizes and write totals.
	Stats() Stats

	// Close closes the store. It blocks while views are open.
	Close() error
}

// Stats are a store's totals since it was opened.
type Stats struct {
	Path         string // of the file; empty if there is none
	FileBytes    int64
	Commits      int64
	CommitTime   time.Duration // in write transactions
	SyncTime     time.Duration // the part of CommitTime spent on writing and syncing the file
	PagesWritten int64

	// Compactions is the number of rewrites of the file without its free space; CompactedBytes
	// is the number of bytes that they have saved together.
	Compactions    int64
	CompactTime    time.Duration
	CompactedBytes int64

	// EncryptionKey is the id of the key that the file is encrypted with; empty for a file in
	// clear. EncryptionDue is set while the file waits to be rewritten with another key, or none.
	EncryptionKey string
	EncryptionDue bool

	FlushError error // of the newest flush; nil if it succeeded

	// ReadFaults is the number of times a page of the file could not be read, and ReadError the
	// newest such error, or nil.
	ReadFaults int64
	ReadError  error
}

// Collection is one kind of object in one scope, owned by the caller of [DB.Open]. One writer at a time
// may call Apply, Replace, Reopen and Close, and beside it one goroutine Describe; everything else is
// safe for concurrent use.
type Collection interface {
	// Info returns the identity of the stored objects, which may differ from the one that Open
	// was given. See DB.Open.
	Info() Info

	// State returns checkpoint and totals as of the newest Apply or Commit.
	State() State

	// Apply makes the batch's changes and checkpoint visible as one unit: after an error none
	// of them is. The store makes them durable, as one unit too, within its flush interval or
	// at DB.Flush. It does not keep the slice of changes. It returns ErrScope if the collection
	// waits for a Replacement to bring it to the scope it was opened with.
	Apply(Batch) error

	// Replace begins a Replacement, under the scope that Open was given.
	Replace() (Replacement, error)

	// Describe stores the server's description of the resource in place of the stored one, and writes
	// nothing if they are equal. No replacement removes it. The store makes it durable
	// within its flush interval or at DB.Flush. The caller must not change it any more.
	Describe(Description) error

	// Header is [View].Header in the newest state, for a caller that needs no other key of it and can't
	// wait for the writer.
	Header(key string) (Header, error)

	// Lookup begins reads of single keys in the newest state. They wait while the store writes, and
	// cost a store on disk less than a view. The caller of Apply can pass it on as Batch.Read.
	Lookup() Lookup

	// View returns the newest consistent state. The caller must close it, and soon: while a
	// view is open, the store can't reuse the space that it needs.
	View() (View, error)

	// Indexed returns a channel that is closed when the indexes that are being built are complete, or one
	// can't be built for now; nil if none is being built. Until then a read of one looks at all objects.
	Indexed() <-chan struct{}

	// Reopen has the effect of Close and DB.Open, but the collection keeps its owner: readers go on,
	// and on an error it stays as it was. It returns ErrReplacing during a replacement. The ID
	// must be the same.
	Reopen(info Info, indexes ...Index) error

	// Close gives the collection up, so that it can be opened again, and aborts a replacement that
	// has not ended. Views stay open; all other methods with an error return ErrClosed from then on,
	// Info and State their last results. A second Close does nothing.
	Close() error
}

// Lookup reads single keys, by methods of [View]. It is for one goroutine.
type Lookup interface {
	Header(key string) (Header, error)
	Get(key string) (*object.Object, error)
}

// Replacement collects the difference between a collection and a complete list: all other keys stay. No
// part of it is visible before Commit; a crash before Commit leaves the old state. It is for one goroutine.
type Replacement interface {
	// Apply adds changes. A key may come again; the newest change wins.
	Apply([]Change) error

	// Commit makes all changes and the checkpoint visible and durable as one unit and
	// marks the collection synced.
	Commit(Checkpoint) error

	// Abort drops the changes. Abort after Commit or Abort does nothing.
	Abort() error
}

// View is one consistent state of a collection. It is for one goroutine. Of the results of its
// methods, only objects may be used after Close.
//
// Every iteration can be continued from a position, the argument after: the last key, or index
// entry, of the page before. The zero position is the beginning. A position has the same meaning in
// every view. In the same view the next page continues with nothing left out and nothing twice; in
// a newer view it continues in the newer state, so changes before the position are not seen. The
// key or entry at a position need not exist (any more).
type View interface {
	Info() Info
	State() State

	// Description returns the stored description; zero if there is none, or it is corrupt. The
	// caller must not change it.
	Description() (Description, error)

	// Get returns the object at key, or ErrNotFound, or a *CorruptionError.
	Get(key string) (*object.Object, error)

	// Raw returns a copy of [object.Object.Raw] of the object at key, in buf if it fits. It does not
	// parse the object.
	Raw(key string, buf []byte) ([]byte, error)

	// Header returns the header of the object at key, without decoding the object.
	Header(key string) (Header, error)

	// Objects iterates over the objects whose keys start with prefix and come after the key
	// after, in key order. An error ends the iteration, except that a corrupt record is
	// reported as *CorruptionError and skipped.
	Objects(prefix, after string) iter.Seq2[*object.Object, error]

	// Records is Objects without decoding.
	Records(prefix, after string) iter.Seq2[Record, error]

	// Headers is Records without the objects.
	Headers(prefix, after string) iter.Seq2[Header, error]

	// Indexes returns the names of the complete indexes besides NamespaceIndex, in order.
	Indexes() []string

	// Building returns the names of the indexes that are being built, in order. A read of one of
	// them gives the same result as when it is complete, but scans all objects. A read of an
	// unknown index returns ErrNoIndex, and so does one of an index that is being built if its
	// Spec is not of LabelIndex or FieldIndex and the collection is not open with it.
	Building() []string

	// IndexKeys iterates over the keys under value that come after the key after, in order.
	IndexKeys(index, value, after string) iter.Seq2[string, error]

	// IndexEntries iterates over the (value, key) pairs whose values start with prefix and that
	// come after the pair after, ordered by value, then by key. A position without a key comes
	// before all keys of its value, so an iteration can begin at a value. A position whose value
	// ends in a zero byte comes after all keys of the value without that byte, so an iteration
	// can skip from value to value.
	IndexEntries(index, prefix string, after IndexEntry) iter.Seq2[IndexEntry, error]

	// Horizon returns where the collection's history begins. It is zero if the store keeps none.
	Horizon() (Horizon, error)

	// Changes iterates over the changes after the resourceVersion since, in ascending order of
	// resourceVersions: the newest change of each key, and each deletion. To continue later, pass
	// State().RV of this view as since: then no entry is left out, but one past that RV may come
	// again. The error is a *TooOldError if the history does not reach back to since, and wraps
	// ErrAhead if since is past the checkpoint, or ErrNoHistory if the store keeps none. A corrupt entry is reported as *CorruptionError and
	// skipped: the changes are not complete then.
	Changes(since string) iter.Seq2[Event, error]

	// Skips reports whether the history goes past the state at rv in a [Gap]: the changes after rv are
	// then not all that a reader with that state needs. It is false before the history.
	Skips(rv string) (bool, error)

	// Close closes the view. A second Close does nothing.
	Close()
}

// HistorySinceCause is the cause in the error of a Kubernetes API served from a store for a past state
// that is not known, while all changes since are. Its message is the time of the horizon, see [Horizon].
const HistorySinceCause = "HistorySince"

// IndexEntry is one key under one value of an index.
type IndexEntry struct{ Value, Key string }

// Compare returns -1 if e comes first in an index, 1 if other does, and 0 if they are equal.
func (e IndexEntry) Compare(other IndexEntry) int {
	if c := cmp.Compare(e.Value, other.Value); c != 0 {
		return c
	}
	return cmp.Compare(e.Key, other.Key)
}

// NamespaceIndex is the index of every collection by namespace, "" for cluster-scoped objects.
const NamespaceIndex = "namespace"
