package config

import (
	"cmp"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion and Kind identify the configuration files that this package reads.
const (
	APIVersion = "snapcache.dev/v1alpha1"
	Kind       = "AgentConfiguration"
)

// SecretsConsent is the sentence that [Secrets.StoreOnDisk] has to contain, literally, before a
// Secret is cached. It is a sentence and not a boolean so that a reviewer of the file reads it.
const SecretsConsent = "I understand that Secrets will be stored unencrypted on this node's disk"

// AgentConfiguration is the configuration of one agent. The zero value of an optional field means
// its default; see [AgentConfiguration.SetDefaults]. example.yaml explains each field.
type AgentConfiguration struct {
	TypeMeta

	// Kubeconfig is the kubeconfig file; empty for kubectl's places.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// FallbackContext is the context of the kubeconfig whose server is used while the current
	// context's is gone; empty for none. Both must be of one cluster.
	FallbackContext string `json:"fallbackContext,omitempty"`

	// ResumeJitter limits the random wait before each resource's first request, at most [MaxResumeJitter]. The
	// wait before a list after a 410 follows from it.
	ResumeJitter *metav1.Duration `json:"resumeJitter,omitempty"`

	Relist        Relist        `json:"relist,omitzero"`
	Verify        Verify        `json:"verify,omitzero"`
	Store         Store         `json:"store,omitzero"`
	Encryption    Encryption    `json:"encryption,omitzero"`
	History       History       `json:"history,omitzero"`
	Snapshots     Snapshots     `json:"snapshots,omitzero"`
	Restore       Restore       `json:"restore,omitzero"`
	LocalAPI      LocalAPI      `json:"localAPI,omitzero"`
	KubernetesAPI KubernetesAPI `json:"kubernetesAPI,omitzero"`
	Metrics       Metrics       `json:"metrics,omitzero"`
	Health        Health        `json:"health,omitzero"`
	Log           Log           `json:"log,omitzero"`
	Secrets       Secrets       `json:"secrets,omitzero"`

	// Profile adds a set of resources to Resources; empty for none.
	Profile Profile `json:"profile,omitempty"`
	// NodeName is the node whose pods the profile caches, and in a signer's certificate.
	NodeName string `json:"nodeName,omitempty"`
	// Resources are the resources to cache, each once. One of them takes the place of the profile's
	// entry for it. Without resources and profile, they are [DefaultResources].
	Resources []Resource `json:"resources,omitempty"`
}

// TypeMeta has the version and kind of the file, as in Kubernetes.
type TypeMeta struct {
	// APIVersion is "snapcache.dev/v1alpha1".
	APIVersion string `json:"apiVersion"`
	// Kind is "AgentConfiguration".
	Kind string `json:"kind"`
}

// Relist configures the guard against lists that are not complete.
type Relist struct {
	// ConfirmDeletions is a percentage from 1 to 100: a list that would delete more has to be
	// confirmed by a second one, if at least 100 objects are stored.
	ConfirmDeletions int `json:"confirmDeletions,omitempty"`
}

// Verify configures the comparison of stored objects with the server.
type Verify struct {
	// Interval is the mean time between two comparisons, from [MinVerifyInterval] to
	// [MaxVerifyInterval], or 0 for comparisons on request only.
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// StoreType selects the implementation of the store.
type StoreType string

// The stores.
const (
	StoreBolt   StoreType = "bolt"   // the default: one bbolt file that survives restarts
	StoreMemory StoreType = "memory" // every start lists everything again
)

// Store configures the store.
type Store struct {
	// Type is bolt or memory.
	Type StoreType `json:"type,omitempty"`
	// Path is the database file. The memory store may use its directory for the local API's socket.
	Path string `json:"path,omitempty"`
	// CommitInterval is how long changes wait for a commit if there are enough of them (256 KiB),
	// above 0 and at most [MaxCommitInterval].
	CommitInterval metav1.Duration `json:"commitInterval,omitzero"`
	// MaxSize is the quota of the database file in bytes, from [MinStoreSize] to [MaxStoreSize].
	MaxSize resource.Quantity `json:"maxSize,omitzero"`
}

// Encryption configures the encryption of the database and its snapshots. It covers the content of
// objects, but not their names and the values of indexes. It holds names of files, never a key.
type Encryption struct {
	// KeyFile holds the key, as base64 of 32 bytes; empty for no encryption.
	KeyFile string `json:"keyFile,omitempty"`
	// OldKeyFiles hold keys used before.
	OldKeyFiles []string `json:"oldKeyFiles,omitempty"`
}

// History limits the stored changes. The memory store keeps none.
type History struct {
	// Retention is how long a change is kept, from [MinHistoryRetention] to [MaxHistoryRetention].
	Retention metav1.Duration `json:"retention,omitzero"`
	// MaxSize limits the history of each collection in bytes, from [MinHistorySize] to
	// [MaxHistorySize]; the oldest changes are deleted first.
	MaxSize resource.Quantity `json:"maxSize,omitzero"`
}

// Snapshots configures when snapshots are made and which are kept. It has no effect on the memory
// store.
type Snapshots struct {
	// Interval is from [MinSnapshotInterval] to [MaxSnapshotAge]; zero for snapshots on request only.
	Interval metav1.Duration `json:"interval,omitzero"`
	// Keep is the number of snapshots kept, from 1 to [MaxSnapshotsKept].
	Keep int `json:"keep,omitempty"`
	// MaxAge is at most [MaxSnapshotAge]. The newest good snapshot is always kept.
	MaxAge metav1.Duration `json:"maxAge,omitzero"`
	// Dir is the directory of the snapshots.
	Dir string `json:"dir,omitempty"`
}

// Restore configures the source of a new database.
type Restore struct {
	// Seed is a snapshot that an agent without a database starts from, or, without a slash, the
	// context of the kubeconfig whose server, an agent, the first lists come from; empty for none.
	Seed string `json:"seed,omitempty"`
}

// File returns the snapshot; empty for none.
func (r Restore) File() string {
	if strings.Contains(r.Seed, "/") {
		return r.Seed
	}
	return ""
}

// Context returns the context of the kubeconfig; empty for none.
func (r Restore) Context() string {
	if r.File() != "" {
		return ""
	}
	return r.Seed
}

// LocalAPI is the agent's own API.
type LocalAPI struct {
	// Socket is the path of its unix socket, at most [MaxSocketPath] bytes.
	Socket string `json:"socket,omitempty"`
}

// KubernetesAPI is the cache, served read-only as a Kubernetes API. It is off unless it has an
// address or a socket.
type KubernetesAPI struct {
	// Address is the host:port to listen on, with TLS; empty for none.
	Address string `json:"address,omitempty"`
	// Socket is the path of a unix socket without TLS and token, at most [MaxSocketPath] bytes;
	// empty for none.
	Socket string `json:"socket,omitempty"`
	// CertFile and KeyFile hold the certificate of Address and its key, in PEM; empty for one that the
	// agent makes. They are read again when they change.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// Signer is the name of a signer of the cluster, such as [SignerKubeletServing], that issues the
	// certificate of Address; empty for none. It excludes CertFile and KeyFile.
	Signer string `json:"signer,omitempty"`
	// AuthorityCertFile and AuthorityKeyFile hold the certificate of an authority and its key, in PEM, with
	// which the agent issues the certificate of Address; empty for an authority of its own. They are read
	// again when they change, and exclude CertFile, KeyFile and Signer.
	AuthorityCertFile string `json:"authorityCertFile,omitempty"`
	AuthorityKeyFile  string `json:"authorityKeyFile,omitempty"`
	// OpenAPI keeps a copy of the server's OpenAPI v3 documents on disk, and serves it.
	OpenAPI bool `json:"openAPI,omitempty"`
	// Access lets in the cluster's users.
	Access Access `json:"access,omitzero"`
	// Forward sends requests that the cache can't answer to the server.
	Forward Forward `json:"forward,omitzero"`
}

// SignerKubeletServing is the signer of the certificates with which kubelets serve.
const SignerKubeletServing = "kubernetes.io/kubelet-serving"

// Access lets the cluster's users in at the address of the Kubernetes API, besides the bearer of the
// agent's own token. They have the rights to read that they have in the cluster.
type Access struct {
	// Enabled turns it on.
	Enabled bool `json:"enabled,omitempty"`
	// ClientCAFile holds the authorities of client certificates, in PEM. If it is empty, the cluster's
	// server publishes them. It is read again when it changes.
	ClientCAFile string `json:"clientCAFile,omitempty"`
	// RememberFor is how long the server's decisions are used while it can't be reached.
	RememberFor metav1.Duration `json:"rememberFor,omitzero"`
	// IssueKubeletCertificate issues a client certificate to the kubelet of NodeName, for this API alone.
	IssueKubeletCertificate bool `json:"issueKubeletCertificate,omitempty"`
}

// Enabled reports whether the Kubernetes API is served.
func (k KubernetesAPI) Enabled() bool { return k.Address != "" || k.Socket != "" }

// TrustedFile returns the file by whose certificates clients trust Address; empty for the agent's own.
func (k KubernetesAPI) TrustedFile() string { return cmp.Or(k.CertFile, k.AuthorityCertFile) }

// Metrics is the agent's Prometheus endpoint.
type Metrics struct {
	// Disabled turns it off.
	Disabled bool `json:"disabled,omitempty"`
	// Address is the loopback host:port to listen on; port 0 takes a free one.
	Address string `json:"address,omitempty"`
}

// ReadyWhen is the state in which the agent reports to systemd that it is ready.
type ReadyWhen string

// The states.
const (
	ReadyReadable ReadyWhen = "readable" // the default: the cache can be read; the network may still be down
	ReadyCaughtUp ReadyWhen = "caughtUp" // every resource is caught up with the server, however long that takes
)

// Health configures when the agent is ready.
type Health struct {
	// ReadyWhen is when systemd starts the units that are ordered after the agent.
	ReadyWhen ReadyWhen `json:"readyWhen,omitempty"`
	// MaxStaleness is the age of the cache at which /readyz fails; 0 means never.
	MaxStaleness metav1.Duration `json:"maxStaleness,omitzero"`
}

// LogLevel is the lowest level that is logged. It is a [slog.Leveler].
type LogLevel string

// The log levels.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// Level implements [slog.Leveler]. A value that is not a level means info.
func (l LogLevel) Level() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l)) // an error leaves the zero value, which is info
	return level
}

// LogFormat is the form of log lines.
type LogFormat string

// The log formats, one for each of log/slog's two handlers.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Log configures the log.
type Log struct {
	Level  LogLevel  `json:"level,omitempty"`
	Format LogFormat `json:"format,omitempty"`
}

// Secrets configures whether Secrets are stored, and when they are deleted.
type Secrets struct {
	// StoreOnDisk is [SecretsConsent], or empty to refuse Secrets.
	StoreOnDisk string `json:"storeOnDisk,omitempty"`
	// PurgeAfter is how long the server must forbid Secrets (403) before the stored ones are
	// deleted, from [MinPurgeAfter] to [MaxPurgeAfter].
	PurgeAfter metav1.Duration `json:"purgeAfter,omitzero"`
}

// Allowed reports whether Secrets may be cached.
func (s Secrets) Allowed() bool { return s.StoreOnDisk == SecretsConsent }

// Resource selects a resource, or a part of one, to cache.
type Resource struct {
	// Resource is the resource's name as for kubectl.
	Resource ResourceName `json:"resource"`
	// Namespaces are the namespaces whose objects are cached; empty for all.
	Namespaces []string `json:"namespaces,omitempty"`
	// LabelSelector and FieldSelector are applied by the server. Empty selects everything.
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Indexes are added to the index "namespace" that every resource has.
	Indexes   []Index   `json:"indexes,omitempty"`
	Transform Transform `json:"transform,omitzero"`
	Staleness Staleness `json:"staleness,omitzero"`
}

// Scopes returns the namespaces with a collection each: Namespaces, or "" alone for one of all.
func (r Resource) Scopes() []string {
	if len(r.Namespaces) == 0 {
		return []string{""}
	}
	return r.Namespaces
}

// StalenessPolicy selects how the Kubernetes API answers while the server can't be reached.
type StalenessPolicy string

// The policies.
const (
	StalenessServe  StalenessPolicy = "serve"  // as usual
	StalenessWarn   StalenessPolicy = "warn"   // the default: with a Warning header, which kubectl prints
	StalenessRefuse StalenessPolicy = "refuse" // with an error, once the resource is older than MaxAge
)

// Staleness configures how requests to the Kubernetes API for a resource are answered while the
// server can't be reached.
type Staleness struct {
	// Policy is serve, warn or refuse.
	Policy StalenessPolicy `json:"policy,omitempty"`
	// MaxAge is the age at which requests are refused, from [MinStalenessAge] to [MaxStalenessAge].
	// Until then they are answered as with warn. Only refuse has it.
	MaxAge metav1.Duration `json:"maxAge,omitzero"`
}

// NamespaceIndex is the name of the index that every resource has. It is reserved.
const NamespaceIndex = "namespace"

// Index makes objects findable by the value of one field or one label.
type Index struct {
	// Name is unique within the resource: letters, digits, '-', '_' and '.', at most 63 of them.
	Name string `json:"name"`
	// Field is the path of a field, see [object.IsPath].
	Field string `json:"field,omitempty"`
	// Label is the key of a label. An index has either a field or a label.
	Label string `json:"label,omitempty"`
}

// Transform selects fields that are dropped from an object before it is stored.
type Transform struct {
	// KeepManagedFields keeps metadata.managedFields, which are dropped by default.
	KeepManagedFields bool `json:"keepManagedFields,omitempty"`
	// Drop are the paths of further fields to drop, in the form of [Index.Field].
	Drop []string `json:"drop,omitempty"`
}
