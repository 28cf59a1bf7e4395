package localapi

import (
	"context"
	"errors"
	"time"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

var (
	// ErrNotSynced says that a collection has no complete list yet.
	ErrNotSynced = errors.New("never synced")

	// ErrNoCollection says that nothing of that name is cached.
	ErrNoCollection = errors.New("not cached")

	// ErrNoIndex says that a collection has no index of that name.
	ErrNoIndex = errors.New("no such index")

	// ErrTooOld says that what changed since then can't all be told any more: whoever
	// gets it has to read the collection anew.
	ErrTooOld = errors.New("too old")

	// ErrAhead says that a collection has not come to a resourceVersion yet.
	ErrAhead = errors.New("ahead of the cache")

	// ErrNoFollow says that nobody tells a source when something changes.
	ErrNoFollow = errors.New("following needs the running agent")
)

// Source answers questions about a cache. It is safe for concurrent use.
type Source interface {
	// Status returns what there is and how fresh it is.
	Status(ctx context.Context) (*Status, error)

	// Index returns the values of one index of a collection, in order. The error is
	// store.ErrIndexBuilding while the index is not complete, as that of Keys.
	Index(ctx context.Context, collection, index string) ([]IndexValue, error)

	// Keys calls each for the keys of a collection, in order: all of them, or where
	// q.Index is set those filed under q.Value.
	Keys(ctx context.Context, collection string, q KeyQuery, each func(Key) error) error

	// Objects calls each for the objects of a collection, in key order.
	Objects(ctx context.Context, collection string, q ObjectQuery, each func(*object.Object) error) error

	// Changes calls each for what changed in a collection, in the order of
	// resourceVersions, and then for a [Bookmark]: to be told the rest later, ask for
	// changes since that one. A change may come again then; none is left out, and what
	// each is called with is right for who knows all that came before.
	//
	// To follow, it goes on with what comes, a bookmark after each lot. Then it returns
	// only with an error: ctx's, ErrNoAgent where the agent stops, ErrTooOld where the
	// history that was followed is gone. A bookmark is never followed by fewer
	// changes than there were: after damage there is none.
	Changes(ctx context.Context, collection string, q ChangeQuery, each func(Change) error) error
}

// KeyQuery selects keys by an index, or all where Index is empty.
type KeyQuery struct {
	Index, Value string
}

// ObjectQuery selects objects by namespace and label selector; empty for all. The
// namespace does not matter where the objects live in none, as in kubectl.
type ObjectQuery struct {
	Namespace     string
	LabelSelector string
}

// Key is one key of a collection.
type Key struct {
	Key             string `json:"key"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	Bytes           int    `json:"bytes"` // length of the object's JSON
}

// IndexValue is one value of an index with what is filed under it.
type IndexValue struct {
	Value   string `json:"value"`
	Objects int64  `json:"objects"`
	Bytes   int64  `json:"bytes"` // length of the objects' JSON
}

// Status is a cache at a glance.
type Status struct {
	// Agent tells about the running agent; nil where the answer is from a file.
	Agent *AgentStatus `json:"agent,omitempty"`

	Store StoreStatus `json:"store"`

	// Snapshots tells about copies of the database; nil where none can be made, or the
	// answer is from a file.
	Snapshots *SnapshotStatus `json:"snapshots,omitempty"`

	Collections []Collection `json:"collections"` // ordered by ID
}

// AgentStatus tells about a running agent.
type AgentStatus struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`

	// Server is the kube-apiserver's URL, Connected whether it answered last.
	Server    string `json:"server,omitempty"`
	Connected bool   `json:"connected"`

	// Problem is what keeps the whole agent from being in step, in one line.
	Problem string `json:"problem,omitempty"`

	// ConfigLoaded is when the configuration in force was read. ConfigProblem is why the
	// newest one that was to take its place did not, in one line.
	ConfigLoaded  time.Time `json:"configLoaded"`
	ConfigProblem string    `json:"configProblem,omitempty"`
}

// StoreStatus tells about the database.
type StoreStatus struct {
	Type      string `json:"type"` // bolt or memory
	Path      string `json:"path,omitempty"`
	FileBytes int64  `json:"fileBytes"`

	// EncryptionKey is the id of the key that the file is encrypted with, empty where it
	// is in clear. EncryptionDue says that the configuration names another, or none, and
	// that the file is being rewritten.
	EncryptionKey string `json:"encryptionKey,omitempty"`
	EncryptionDue bool   `json:"encryptionDue,omitempty"`

	// Verdict is what was decided when the file was opened.
	Verdict string `json:"verdict,omitempty"`

	// Quarantined is why the file that was there was set aside when the agent was started:
	// newer-format, foreign or damaged; empty where it was not.
	Quarantined string `json:"quarantined,omitempty"`

	// Problem is why changes can't be stored at the moment.
	Problem string `json:"problem,omitempty"`

	// ReadProblem is what of the file could not be read since the agent was started, and
	// how often.
	ReadProblem string `json:"readProblem,omitempty"`
}

// Collection tells about one cached collection.
type Collection struct {
	ID            string `json:"id"`
	Group         string `json:"group,omitempty"`
	Version       string `json:"version,omitempty"` // empty until the server was asked
	Resource      string `json:"resource"`
	Kind          string `json:"kind,omitempty"`
	Namespace     string `json:"namespace,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`

	// Synced says that a complete list is stored. Where it is false, Objects is not
	// the number of objects that there are.
	Synced  bool  `json:"synced"`
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`

	// ResourceVersion is the checkpoint.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Cluster         string `json:"cluster,omitempty"`

	// HistorySince is where the history begins: changes after it can be told.
	HistorySince store.Horizon `json:"historySince,omitzero"`

	// Phase is what the agent is doing for the collection: starting, resuming,
	// listing, watching, waiting; "stored" where the answer is from a file.
	Phase string `json:"phase"`

	// InStep says that the watch is up, so the collection is as fresh as it gets.
	InStep bool `json:"inStep"`

	// Proven is when the collection was last known to be complete; AgeSeconds is
	// how long ago that is, 0 while InStep.
	Proven     time.Time `json:"proven,omitzero"`
	AgeSeconds float64   `json:"ageSeconds"`

	// Verdict is what was decided for the collection at the start: "resume at RV 5",
	// "list: initial".
	Verdict string `json:"verdict,omitempty"`

	// Untrusted is why a list has to replace what is stored, in the words of
	// ListReason, where that is not the server's any more: it is of another cluster or
	// another history, or made by other rules. It is readable until then.
	Untrusted string `json:"untrusted,omitempty"`

	// ListReason is why the newest complete list was made, LastList when.
	ListReason string    `json:"listReason,omitempty"`
	LastList   time.Time `json:"lastList,omitzero"`

	// Lists counts this process's complete lists, Resumes its resumed watches, and
	// Events the watch events that it received.
	Lists   int64 `json:"lists"`
	Resumes int64 `json:"resumes"`
	Events  int64 `json:"events"`

	// Relists are those lists by reason; EventsByMinute the events but for bookmarks of
	// each of the last 60 minutes, the oldest first and the minute under way last.
	Relists        map[string]int64 `json:"relists,omitempty"`
	EventsByMinute []int64          `json:"eventsByMinute,omitempty"`

	// ListRead and ListRemaining are the progress of a list that is under way;
	// ListRemaining is -1 where the server does not tell.
	ListRead      int64 `json:"listRead,omitempty"`
	ListRemaining int64 `json:"listRemaining,omitempty"`

	// Indexes are those that can be asked, Building those that are being built.
	Indexes  []string `json:"indexes"`
	Building []string `json:"building,omitempty"`

	// Problem is why the collection is not in step, in one line. ProblemKind is its class:
	// unreachable, untrusted, unauthorized, forbidden, gone, expired, ahead, throttled,
	// server or other.
	Problem     string `json:"problem,omitempty"`
	ProblemKind string `json:"problemKind,omitempty"`

	// DamagedRecords is how many records failed their check, as far as the running
	// agent knows, and were not fetched again yet. They are not served.
	DamagedRecords int64 `json:"damagedRecords,omitempty"`

	// Verification is what came of the newest comparison with the server in this process;
	// nil for none yet.
	Verification *Verification `json:"verification,omitempty"`

	// RefusedSeconds is for how long the server has forbidden it, as far as this agent saw
	// it, where all that is stored is to be deleted for that.
	RefusedSeconds float64 `json:"refusedSeconds,omitempty"`

	// Purged is when and how much was deleted for that, the newest time in this process;
	// nil for never.
	Purged *Purge `json:"purged,omitempty"`

	// Damaged says that what is stored of the collection can't be read at all, so
	// that Synced and all counts are unknown. Problem is how.
	Damaged bool `json:"damaged,omitempty"`
}

// Purge tells of all that was stored of a collection being deleted because the server
// forbids it.
type Purge struct {
	Time    time.Time `json:"time"`
	Objects int64     `json:"objects"`
}
