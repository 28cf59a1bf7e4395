package localapi

import (
	"context"
	"errors"
	"time"

	"github.com/snapcache/snapcache/store"
)

var (
	// ErrNotSynced means that a collection has no complete list yet.
	ErrNotSynced = errors.New("never synced")

	// ErrTooOld means that the history no longer has all changes after the requested point. The
	// client has to read the collection again.
	ErrTooOld = errors.New("too old")

	// ErrNoFollow means that the source gets no notice of changes.
	ErrNoFollow = errors.New("following needs the running agent")
)

// Source answers queries about a cache. It is safe for concurrent use.
type Source interface {
	// Status returns the content of the cache and how fresh it is.
	Status(ctx context.Context) (*Status, error)

	// Index returns the values of one index for each of the collections, in order.
	Index(ctx context.Context, collections []string, index string) ([][]IndexValue, error)

	// Keys calls each for the keys of the collections, one collection after the other, in order.
	Keys(ctx context.Context, collections []string, q KeyQuery, each func(collection string, k Key) error) error

	// Objects calls each with the JSON of the objects of the collections, one collection after the
	// other, in key order. The bytes are valid until each returns.
	Objects(ctx context.Context, collections []string, q ObjectQuery, each func(json []byte) error) error

	// Changes calls each for the changes of a collection, in the order of resourceVersions, and
	// then for a [Bookmark], with which a later query continues. That query may deliver a change
	// again, but it leaves none out, and the type of each change is right for a client that has
	// seen all before.
	//
	// With q.Follow it continues with later changes, each batch followed by a bookmark. It then
	// returns only with an error: ctx's, ErrNoAgent if the agent stops, or ErrTooOld if the
	// history that was followed is gone. All changes before a bookmark were delivered: after a
	// corrupt entry there is no bookmark.
	Changes(ctx context.Context, collection string, q ChangeQuery, each func(Change) error) error
}

// KeyQuery selects the keys with a value in an index, or all keys if Index is empty.
type KeyQuery struct {
	Index, Value string

	// Namespace and NamePrefix limit the keys to one namespace, and to names that begin with the
	// prefix; empty for all. As in kubectl, the namespace is ignored for cluster-scoped objects.
	Namespace, NamePrefix string

	// After is the last key of the page before; empty for the first page. Limit is the greatest
	// number of keys of each collection, 0 for no limit.
	After string
	Limit int
}

// ObjectQuery selects objects by namespace, label selector and names; empty for all. As in kubectl,
// the namespace is ignored for cluster-scoped objects.
type ObjectQuery struct {
	Namespace     string
	LabelSelector string
	Names         []string // without namespaces

	// Key selects one object, in place of a namespace. Without such an object the query fails with
	// [store.ErrNotFound].
	Key string
}

// Key is one key of a collection.
type Key struct {
	Key             string `json:"key"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	Bytes           int    `json:"bytes"` // length of the object's JSON
}

// IndexValue is one value of an index, with the number and size of its objects.
type IndexValue struct {
	Value   string `json:"value"`
	Objects int64  `json:"objects"`
	Bytes   int64  `json:"bytes"` // length of the objects' JSON
}

// Status is a summary of a cache.
type Status struct {
	// Agent describes the running agent; nil if the answer is from a file.
	Agent *AgentStatus `json:"agent,omitempty"`

	Store StoreStatus `json:"store"`

	// Snapshots describes the snapshots. It is nil if none can be made, or if the answer is from a
	// file.
	Snapshots *SnapshotStatus `json:"snapshots,omitempty"`

	Collections []Collection `json:"collections"` // ordered by ID
}

// AgentStatus describes a running agent.
type AgentStatus struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`

	// Server is the kube-apiserver's URL, Connected whether the last request succeeded.
	Server    string `json:"server,omitempty"`
	Connected bool   `json:"connected"`
	// Fallback reports that Server belongs to the configuration's fallbackContext.
	Fallback bool `json:"fallback,omitempty"`

	// SilentSeconds is how long the server has not answered; 0 if it does, or if nothing was asked. A watch over a link
	// that was lost without a reset ends later. Meanwhile clients of the Kubernetes API are answered without the server.
	SilentSeconds float64 `json:"silentSeconds,omitempty"`

	// Problem is the cause that keeps the whole agent from catching up, in one line.
	Problem string `json:"problem,omitempty"`

	// ConfigLoaded is when the configuration in force was read. ConfigProblem is why a newer one
	// was refused, in one line.
	ConfigLoaded  time.Time `json:"configLoaded"`
	ConfigProblem string    `json:"configProblem,omitempty"`

	// Programs are the clients of the Kubernetes API, those with the most requests first.
	Programs []Program `json:"programs,omitempty"`
}

// Program is what a client program has asked the Kubernetes API since the agent started. The server has seen those
// requests that were forwarded, and no other.
type Program struct {
	Name      string `json:"name"`     // as it gives itself in its User-Agent
	Requests  int64  `json:"requests"` // answered by the agent, watches apart
	Watches   int64  `json:"watches"`  // answered by the agent
	Open      int64  `json:"open"`     // of these watches, now
	Forwarded int64  `json:"forwarded"`
}

// ServerText returns the server for people, empty for none.
func (a *AgentStatus) ServerText() string {
	text := a.Server
	if a.Fallback {
		text += " (of fallbackContext)"
	}
	if a.SilentSeconds > 0 && text != "" {
		text += ", no answer for " + Age(a.SilentSeconds)
	}
	return text
}

// StoreStatus describes the database.
type StoreStatus struct {
	Type      string `json:"type"` // bolt or memory
	Path      string `json:"path,omitempty"`
	FileBytes int64  `json:"fileBytes"`

	// EncryptionKey is the id of the key that the file is encrypted with; empty if it is not
	// encrypted. EncryptionDue reports that the configuration has another key, or none, and that
	// the file is being rewritten.
	EncryptionKey string `json:"encryptionKey,omitempty"`
	EncryptionDue bool   `json:"encryptionDue,omitempty"`

	// Verdict is the decision made when the file was opened.
	Verdict string `json:"verdict,omitempty"`

	// Quarantined is why the previous file was set aside when the agent started: newer-format,
	// old-format, foreign or corrupt. It is empty if the file was used.
	Quarantined string `json:"quarantined,omitempty"`

	// Problem is why changes can't be stored at the moment.
	Problem string `json:"problem,omitempty"`

	// ReadProblem is the part of the file that could not be read since the agent started, and how
	// often.
	ReadProblem string `json:"readProblem,omitempty"`
}

// Collection describes one cached collection. The embedded groups have no name in JSON: their fields
// are beside the others.
type Collection struct {
	ID string `json:"id"`
	Scope

	// Synced reports that a complete list is stored. If it is false, Objects is not the real number
	// of objects.
	Synced  bool  `json:"synced"`
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`

	Checkpoint

	// Phase is the current activity of the agent: starting, resuming, listing, watching or waiting;
	// "stored" if the answer is from a file.
	Phase string `json:"phase"`

	// CaughtUp reports that the collection is caught up: its watch is open.
	CaughtUp bool `json:"caughtUp"`

	// Proven is when the collection was last known to be complete. AgeSeconds is the time since
	// then, 0 while CaughtUp.
	Proven     time.Time `json:"proven,omitzero"`
	AgeSeconds float64   `json:"ageSeconds"`

	Updates

	// Indexes are the complete indexes, Building the unfinished ones.
	Indexes  []string `json:"indexes"`
	Building []string `json:"building,omitempty"`

	// Problem is why the collection is not caught up, in one line. ProblemKind is its class:
	// unreachable, untrusted, unauthorized, forbidden, gone, expired, ahead, throttled, server or
	// other.
	Problem     string `json:"problem,omitempty"`
	ProblemKind string `json:"problemKind,omitempty"`

	// CorruptRecords is how many records failed their check, as far as the running agent knows, and
	// were not fetched again yet. They are not served.
	CorruptRecords int64 `json:"corruptRecords,omitempty"`

	// Verification is the result of the newest comparison with the server in this process; nil if
	// there was none.
	Verification *Verification `json:"verification,omitempty"`

	// ForbiddenSeconds is how long the server has forbidden the collection, as seen by this agent. It
	// is set only if the stored objects will be deleted for that reason.
	ForbiddenSeconds float64 `json:"forbiddenSeconds,omitempty"`

	// Purged is the newest deletion of that kind in this process; nil if there was none.
	Purged *Purge `json:"purged,omitempty"`

	// Corrupt reports that the stored collection can't be read at all, so that Synced and all
	// counts are unknown. Problem has the reason.
	Corrupt bool `json:"corrupt,omitempty"`
}

// Scope is the resource that a collection caches, and the part of its objects.
type Scope struct {
	Group    string `json:"group,omitempty"`
	Version  string `json:"version,omitempty"` // empty until the server was asked
	Resource string `json:"resource"`
	Kind     string `json:"kind,omitempty"`

	// Singular and ShortNames are the resource's other names, once the server has published them.
	Singular   string   `json:"singular,omitempty"`
	ShortNames []string `json:"shortNames,omitempty"`

	Namespace     string `json:"namespace,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
}

// Checkpoint is the point that the stored objects have reached.
type Checkpoint struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Cluster         string `json:"cluster,omitempty"`

	// AgeUnknown is set if the clock is behind the collection's Proven: then its AgeSeconds is
	// 2147483648, which no limit allows.
	AgeUnknown bool `json:"ageUnknown,omitempty"`

	// HistorySince is the beginning of the history: changes after it are stored.
	HistorySince store.Horizon `json:"historySince,omitzero"`
}

// Updates is how a collection is kept up to date: its lists and its watch.
type Updates struct {
	// Verdict is the decision made for the collection at the start, such as "resume at RV 5" or
	// "list: initial".
	Verdict string `json:"verdict,omitempty"`

	// Untrusted is set if a list has to replace the stored objects, because they belong to another
	// cluster, another history or another configuration. It is the reason, a value of ListReason.
	// The objects stay readable until then.
	Untrusted string `json:"untrusted,omitempty"`

	// SkippedEvents is set if the watch brought events that were left out, since their objects were
	// of another type. The next start makes a list.
	SkippedEvents bool `json:"skippedEvents,omitempty"`

	// ListReason is why the newest complete list was made, LastList is when.
	ListReason string    `json:"listReason,omitempty"`
	LastList   time.Time `json:"lastList,omitzero"`

	// Lists, Resumes and Events count this process's complete lists, resumed watches and received
	// watch events.
	Lists   int64 `json:"lists"`
	Resumes int64 `json:"resumes"`
	Events  int64 `json:"events"`

	// Relists are the complete lists by reason. EventsByMinute are the events without bookmarks in
	// each of the last 60 minutes, the oldest first and the current one last.
	Relists        map[string]int64 `json:"relists,omitempty"`
	EventsByMinute []int64          `json:"eventsByMinute,omitempty"`

	// ListRead and ListRemaining are the progress of a running list. ListRemaining is -1 if
	// unknown.
	ListRead      int64 `json:"listRead,omitempty"`
	ListRemaining int64 `json:"listRemaining,omitempty"`
}

// Purge is a deletion of all stored objects of a collection because the server forbids reading it.
type Purge struct {
	Time    time.Time `json:"time"`
	Objects int64     `json:"objects"`
}
