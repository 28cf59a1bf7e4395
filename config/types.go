package config

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// APIVersion is the apiVersion of the configuration files that this package reads.
	APIVersion = "snapcache.dev/v1alpha1"
	// Kind is their kind.
	Kind = "AgentConfiguration"
)

// SecretsConsent is the sentence that [Secrets.StoreOnDisk] has to hold, to the letter, before a Secret
// is cached. It is a sentence and not a boolean because the one who reviews the file should read it.
const SecretsConsent = "I understand that Secrets will be stored unencrypted on this node's disk"

// AgentConfiguration is the configuration of one agent. The zero value of every optional field means its
// default; see [AgentConfiguration.SetDefaults].
type AgentConfiguration struct {
	// APIVersion is "snapcache.dev/v1alpha1".
	APIVersion string `json:"apiVersion"`
	// Kind is "AgentConfiguration".
	Kind string `json:"kind"`

	// Kubeconfig is the file that says how to reach the kube-apiserver. Empty leaves the choice to the
	// agent, which looks where kubectl looks: $KUBECONFIG, the pod's service account, ~/.kube/config.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// ResumeJitter bounds the random wait before the first request of each resource after a start, so
	// that a fleet that starts at once does not arrive at once. From 0s to [MaxResumeJitter].
	ResumeJitter *metav1.Duration `json:"resumeJitter,omitempty"`

	Relist     Relist     `json:"relist,omitzero"`
	Verify     Verify     `json:"verify,omitzero"`
	Store      Store      `json:"store,omitzero"`
	Encryption Encryption `json:"encryption,omitzero"`
	History    History    `json:"history,omitzero"`
	Snapshots  Snapshots  `json:"snapshots,omitzero"`
	Restore    Restore    `json:"restore,omitzero"`
	LocalAPI   LocalAPI   `json:"localAPI,omitzero"`
	Metrics    Metrics    `json:"metrics,omitzero"`
	Health     Health     `json:"health,omitzero"`
	Log        Log        `json:"log,omitzero"`
	Secrets    Secrets    `json:"secrets,omitzero"`

	// Resources are what is cached, each resource once. Left out: [DefaultResources].
	Resources []Resource `json:"resources,omitempty"`
}

// Relist says how far a complete list is believed.
type Relist struct {
	// ConfirmDeletions is a percentage from 1 to 100. A list that would delete more than that of what is
	// stored of a resource, where that is 100 objects or more, has to be confirmed by a second one. 100
	// believes every list.
	ConfirmDeletions int `json:"confirmDeletions,omitempty"`
}

// Verify says how often what is stored is compared with the server.
type Verify struct {
	// Interval is the time between two comparisons on average, 0 for none but those that are asked for;
	// otherwise between [MinVerifyInterval] and [MaxVerifyInterval].
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// StoreType selects where the cache lives.
type StoreType string

const (
	// StoreBolt keeps the cache in one bbolt file that survives restarts. It is the default.
	StoreBolt StoreType = "bolt"
	// StoreMemory keeps the cache in memory: every start lists everything again.
	StoreMemory StoreType = "memory"
)

// Store says where and how the cache is kept.
type Store struct {
	// Type is bolt or memory.
	Type StoreType `json:"type,omitempty"`
	// Path is the database file; a relative one is relative to the working directory. Not used by the
	// memory store, but for the directory of the local API's socket where nothing better is known.
	Path string `json:"path,omitempty"`
	// CommitInterval is after how long changes are committed where there are enough of them (256 KiB).
	// Fewer wait for company: twelve times as long, but at most 60 s, or CommitInterval where that is
	// longer. It is what a crash may cost in events that the watch then sends again. Above 0 and at most
	// [MaxCommitInterval].
	CommitInterval metav1.Duration `json:"commitInterval,omitzero"`
	// MaxSize is the quota of the database file in bytes, between [MinStoreSize] and [MaxStoreSize].
	// Its Value method has it as an int64.
	MaxSize resource.Quantity `json:"maxSize,omitzero"`
}

// Encryption says with what the database and its snapshots are encrypted. It has the names of files and
// never a key.
type Encryption struct {
	// KeyFile holds the key, as base64 of 32 bytes; empty for no encryption. A name without a slash is that
	// of a systemd credential, where the unit loads any.
	KeyFile string `json:"keyFile,omitempty"`
	// OldKeyFiles hold keys that were used before: what is encrypted with one of them can be read, and is
	// rewritten.
	OldKeyFiles []string `json:"oldKeyFiles,omitempty"`
}

// On says that what is stored is encrypted.
func (e Encryption) On() bool { return e.KeyFile != "" }

// History says how much of what changed is remembered. The memory store always keeps the defaults.
type History struct {
	// Retention is for how long, between [MinHistoryRetention] and [MaxHistoryRetention].
	Retention metav1.Duration `json:"retention,omitzero"`
	// MaxSize bounds the history of each collection in bytes, between [MinHistorySize] and
	// [MaxHistorySize]; the oldest of it is forgotten first. Its Value method has it as an int64.
	MaxSize resource.Quantity `json:"maxSize,omitzero"`
}

// Snapshots says when copies of the database are made and which are kept. They have no effect on the
// memory store.
type Snapshots struct {
	// Interval is the time between two snapshots; zero makes none but those that are asked for. Each one
	// writes a compressed copy of the whole database to the flash. Otherwise between
	// [MinSnapshotInterval] and [MaxSnapshotAge].
	Interval metav1.Duration `json:"interval,omitzero"`
	// Keep is how many are kept, from 1 to [MaxSnapshotsKept].
	Keep int `json:"keep,omitempty"`
	// MaxAge is how old one may become, at most [MaxSnapshotAge]. The newest good one is always kept.
	MaxAge metav1.Duration `json:"maxAge,omitzero"`
	// Dir is the directory that they are kept in.
	Dir string `json:"dir,omitempty"`
}

// Restore says what a database is made from.
type Restore struct {
	// Seed is a snapshot that an agent without a database begins with; empty for none.
	Seed string `json:"seed,omitempty"`
}

// LocalAPI is the agent's own API.
type LocalAPI struct {
	// Socket is the path of the unix socket it listens on, at most [MaxSocketPath] bytes.
	Socket string `json:"socket,omitempty"`
}

// Metrics is the agent's Prometheus endpoint.
type Metrics struct {
	// Disabled turns it off.
	Disabled bool `json:"disabled,omitempty"`
	// Address is the loopback host:port that it listens on; port 0 takes a free one.
	Address string `json:"address,omitempty"`
}

// ReadyWhen is when an agent calls itself ready to systemd.
type ReadyWhen string

const (
	// ReadyReadable is when the cache can be read, before there is a network. It is the default.
	ReadyReadable ReadyWhen = "readable"
	// ReadyInStep is when all of it is in step with the server, however long that takes.
	ReadyInStep ReadyWhen = "inStep"
)

// Health says when the agent counts as ready.
type Health struct {
	// ReadyWhen is when systemd is told that the service is up, and goes on to what is ordered after it.
	ReadyWhen ReadyWhen `json:"readyWhen,omitempty"`
	// MaxStaleness is how old what is cached may be before /readyz says that the agent is not ready; 0 for
	// any age.
	MaxStaleness metav1.Duration `json:"maxStaleness,omitzero"`
}

// LogLevel is the lowest level that is logged. It is a [slog.Leveler].
type LogLevel string

// The levels.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// Level implements [slog.Leveler]. What isn't a valid level counts as info.
func (l LogLevel) Level() slog.Level {
	switch l {
	case LogDebug:
		return slog.LevelDebug
	case LogWarn:
		return slog.LevelWarn
	case LogError:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

// LogFormat is how a log line is written.
type LogFormat string

// The formats: those of log/slog's two handlers.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Log says what is logged, and how.
type Log struct {
	Level  LogLevel  `json:"level,omitempty"`
	Format LogFormat `json:"format,omitempty"`
}

// Secrets holds the consent to store Secrets, and says when they have to go.
type Secrets struct {
	// StoreOnDisk is empty, and Secrets are refused, or it is [SecretsConsent].
	StoreOnDisk string `json:"storeOnDisk,omitempty"`
	// PurgeAfter is for how long the server must forbid Secrets (403) before those that are stored are
	// deleted: between [MinPurgeAfter] and [MaxPurgeAfter].
	PurgeAfter metav1.Duration `json:"purgeAfter,omitzero"`
}

// Allowed tells whether Secrets may be cached.
func (s Secrets) Allowed() bool { return s.StoreOnDisk == SecretsConsent }

// Resource is one resource to cache, and what of it.
type Resource struct {
	// Resource names it as kubectl does: pods, deployments.apps, widgets.v1.example.com.
	Resource ResourceName `json:"resource"`
	// Namespaces are the namespaces to cache it in; none means all.
	Namespaces []string `json:"namespaces,omitempty"`
	// LabelSelector and FieldSelector narrow it down on the server. Empty selects everything.
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Indexes come on top of the index "namespace" that every resource has.
	Indexes   []Index   `json:"indexes,omitempty"`
	Transform Transform `json:"transform,omitzero"`
}

// NamespaceIndex is the name of the index that every resource has; no other may be called so.
const NamespaceIndex = "namespace"

// Index makes objects findable by the value of one field or one label.
type Index struct {
	// Name is unique within the resource: letters, digits, '-', '_' and '.', at most 63 of them.
	Name string `json:"name"`
	// Field is the path of a field, in the form that [ParseFieldPath] reads.
	Field string `json:"field,omitempty"`
	// Label is a label's key. An index has a field or a label, never both.
	Label string `json:"label,omitempty"`
}

// Transform says what is left out of an object before it is stored.
type Transform struct {
	// KeepManagedFields keeps metadata.managedFields, about half of a pod's bytes; they are dropped
	// otherwise.
	KeepManagedFields bool `json:"keepManagedFields,omitempty"`
	// Drop are the paths of further fields to leave out, in the form that [ParseFieldPath] reads.
	Drop []string `json:"drop,omitempty"`
}
