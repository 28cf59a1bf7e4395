package config

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The defaults, and the limits that follow from the length of the API server's history.
const (
	DefaultCommitInterval   = 5 * time.Second    // balances the events replayed after a crash against the wear of the flash
	MaxCommitInterval       = 5 * time.Minute    // keeps the replay after a crash within the server's history
	DefaultResumeJitter     = 2 * time.Second    // suits a fleet of hundreds of nodes
	MaxResumeJitter         = 5 * time.Minute    // keeps the wait within the server's history
	DefaultConfirmDeletions = 50                 // percent: a list that would delete more needs a confirmation
	DefaultVerifyInterval   = 7 * 24 * time.Hour // a week
	DefaultPurgeAfter       = 24 * time.Hour     // time for which the server has forbidden Secrets
	DefaultMaxSize          = "1Gi"              // quota of the database file
	DefaultHistoryRetention = 24 * time.Hour     // how long changes are kept
	DefaultHistorySize      = "16Mi"             // of each collection
	DefaultSnapshotsKept    = 7
	DefaultRememberFor      = 24 * time.Hour      // how long decisions of the server are used without it
	DefaultSnapshotAge      = 30 * 24 * time.Hour // 30 days
	DefaultMetricsAddress   = "127.0.0.1:9743"
	exampleAPIAddress       = "127.0.0.1:6445" // for errors; the Kubernetes API has no default
	exampleNodeAddress      = "169.254.20.1:6445"
)

// The directories of the package's service, and the names of its files. The service of another cluster,
// snapcache@NAME, has the directories NAME in them.
const (
	serviceEtc   = "/etc/snapcache"
	serviceRun   = "/run/snapcache"
	serviceState = "/var/lib/snapcache"
	agentFile    = "agent.yaml"
	socketName   = "snapcache.sock"
)

// Service is one of the package's services. The zero value is snapcache.service.
type Service struct {
	Cluster string // NAME of snapcache@NAME.service
}

// ServiceOf returns the service whose configuration a file is, if it is one's.
func ServiceOf(file string) (s Service, ok bool) {
	dir, name := filepath.Split(filepath.Clean(file))
	if name != agentFile {
		return s, false
	}
	if dir = filepath.Clean(dir); dir == serviceEtc {
		return s, true
	}
	parent, cluster := filepath.Split(dir)
	return Service{cluster}, filepath.Clean(parent) == serviceEtc
}

// Socket returns the socket that the service has by default.
func (s Service) Socket() string { return filepath.Join(serviceRun, s.Cluster, socketName) }

// Unit returns the name of the service's unit, without ".service".
func (s Service) Unit() string {
	if s.Cluster != "" {
		return "snapcache@" + s.Cluster
	}
	return "snapcache"
}

// Default returns the configuration of an agent without a file. Its paths depend on the environment
// and on the user, see [AgentConfiguration.SetDefaults].
func Default() *AgentConfiguration {
	c := &AgentConfiguration{TypeMeta: TypeMeta{APIVersion, Kind}}
	c.SetDefaults()
	return c
}

// DefaultResources returns the resources that are cached if the configuration names none. With them
// a node finds its peers and its workload. The slice is new each time.
func DefaultResources() []Resource {
	return named("namespaces", "nodes", "pods", "services", "configmaps", "endpointslices.discovery.k8s.io")
}

// SetDefaults fills in every optional field that has its zero value with the default that example.yaml
// names, and appends the resources of a profile. [Load], [Parse] and [Default] call it. A path for which
// no directory is known stays empty, and Validate reports it.
func (c *AgentConfiguration) SetDefaults() { c.setDefaults(surround("")) }

// surround returns the surroundings of this process and of a configuration file.
func surround(file string) surroundings {
	s, _ := ServiceOf(file)
	return surroundings{getenv: os.Getenv, hostname: os.Hostname, root: os.Geteuid() == 0, service: s}
}

// surroundings are the inputs of the defaults other than the configuration.
type surroundings struct {
	getenv   func(string) string
	hostname func() (string, error)
	root     bool
	service  Service // whose configuration it is: root reads its cache, not the one of another cluster
}

func (c *AgentConfiguration) setDefaults(s surroundings) {
	c.ResumeJitter = cmp.Or(c.ResumeJitter, &metav1.Duration{Duration: DefaultResumeJitter})
	c.Relist.ConfirmDeletions = cmp.Or(c.Relist.ConfirmDeletions, DefaultConfirmDeletions)
	c.Verify.Interval = cmp.Or(c.Verify.Interval, &metav1.Duration{Duration: DefaultVerifyInterval})
	c.Secrets.PurgeAfter.Duration = cmp.Or(c.Secrets.PurgeAfter.Duration, DefaultPurgeAfter)
	if len(c.Encryption.OldKeyFiles) == 0 {
		c.Encryption.OldKeyFiles = nil // an empty list means the same as none
	}
	c.Store.Type = cmp.Or(c.Store.Type, StoreBolt)
	c.Store.Path = cmp.Or(c.Store.Path, s.file("cache.db", "STATE_DIRECTORY", serviceState,
		s.below("XDG_STATE_HOME", "snapcache"), s.below("HOME", ".local/state/snapcache")))
	c.Store.CommitInterval.Duration = cmp.Or(c.Store.CommitInterval.Duration, DefaultCommitInterval)
	if c.Store.MaxSize.IsZero() {
		c.Store.MaxSize = resource.MustParse(DefaultMaxSize)
	}
	c.History.Retention.Duration = cmp.Or(c.History.Retention.Duration, DefaultHistoryRetention)
	if c.History.MaxSize.IsZero() {
		c.History.MaxSize = resource.MustParse(DefaultHistorySize)
	}
	c.Snapshots.Keep = cmp.Or(c.Snapshots.Keep, DefaultSnapshotsKept)
	if c.KubernetesAPI.Access.Enabled {
		c.KubernetesAPI.Access.RememberFor.Duration = cmp.Or(c.KubernetesAPI.Access.RememberFor.Duration, DefaultRememberFor)
	}
	c.Snapshots.MaxAge.Duration = cmp.Or(c.Snapshots.MaxAge.Duration, DefaultSnapshotAge)
	beside := ""
	if c.Store.Path != "" {
		beside = filepath.Dir(c.Store.Path)
		c.Snapshots.Dir = cmp.Or(c.Snapshots.Dir, filepath.Join(beside, "snapshots"))
	}
	c.LocalAPI.Socket = cmp.Or(c.LocalAPI.Socket, s.file(socketName, "RUNTIME_DIRECTORY", serviceRun,
		s.below("XDG_RUNTIME_DIR", "snapcache"), beside))
	c.Metrics.Address = cmp.Or(c.Metrics.Address, DefaultMetricsAddress)
	c.Health.ReadyWhen = cmp.Or(c.Health.ReadyWhen, ReadyReadable)
	c.Log.Level = cmp.Or(c.Log.Level, LogInfo)
	c.Log.Format = cmp.Or(c.Log.Format, LogText)
	c.setNodeName(s)
	c.expandProfile()
	// An empty list stays, and Validate refuses it: an agent that caches nothing is a mistake.
	if c.Resources == nil {
		c.Resources = DefaultResources()
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		r.Staleness.Policy = cmp.Or(r.Staleness.Policy, StalenessWarn)
	}
}

// file returns the path of a file in the first directory that is known: from a variable that systemd
// sets, root's if the user is root, or one of others. It returns "" if none is known.
func (s surroundings) file(name, variable, ofRoot string, others ...string) string {
	dir, _, _ := strings.Cut(s.getenv(variable), ":") // systemd separates several directories by colons
	if s.root {
		dir = cmp.Or(dir, filepath.Join(ofRoot, s.service.Cluster))
	}
	if dir = cmp.Or(dir, cmp.Or(others...)); dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// below returns sub in the directory of a variable, or "" if that is relative, as the XDG
// specification demands. A relative $HOME is ignored too.
func (s surroundings) below(variable, sub string) string {
	if dir := s.getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, sub)
	}
	return ""
}
