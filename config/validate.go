package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The limits that Validate enforces.
const (
	MinStoreSize        = 16 << 20                  // bytes; the least that holds one relist of a small cluster
	MaxStoreSize        = 1 << 40                   // bytes
	MinHistoryRetention = time.Minute               // a shorter history ends before a client asks
	MaxHistoryRetention = 30 * 24 * time.Hour       // 30 days
	MinHistorySize      = 64 << 10                  // bytes
	MaxHistorySize      = 1 << 30                   // bytes
	MinVerifyInterval   = 10 * time.Second          // for experiments
	MaxVerifyInterval   = 365 * 24 * time.Hour      // a year
	MinPurgeAfter       = time.Second               // time for which the server has forbidden Secrets
	MaxPurgeAfter       = 30 * 24 * time.Hour       // 30 days
	MinRememberFor      = time.Minute               // the server is asked that often anyway
	MaxRememberFor      = 30 * 24 * time.Hour       // thirty days
	MinSnapshotInterval = 10 * time.Minute          // below it, wear of the flash outweighs the use
	MaxSnapshotAge      = 10 * 365 * 24 * time.Hour // ten years; also the longest time between two snapshots
	MaxSnapshotsKept    = 1000
	MinStalenessAge     = time.Second          // for experiments
	MaxStalenessAge     = 365 * 24 * time.Hour // a year
	MaxSocketPath       = 107                  // bytes; the kernel's limit for the path of a unix socket
)

// Validate checks a configuration that has its defaults, such as one made in Go with
// [AgentConfiguration.SetDefaults]; [Load] and [Parse] have done it. The error has all faults, as
// joined [Error] values without file and line.
func (c *AgentConfiguration) Validate() error {
	return join(c.problems())
}

func (c *AgentConfiguration) problems() problems {
	var p problems
	if fault, _ := c.wrongKind(); fault != "" {
		p.add("", "%s", fault)
	}
	if d := c.ResumeJitter; d != nil {
		validateDuration(&p, "resumeJitter", d.Duration, 0, MaxResumeJitter, "")
	}
	if n := c.Relist.ConfirmDeletions; n < 1 || n > 100 {
		p.add("relist.confirmDeletions", "%d is out of range: a percentage from 1 to 100", n)
	}
	if d := c.Verify.Interval; d != nil && d.Duration != 0 {
		validateDuration(&p, "verify.interval", d.Duration, MinVerifyInterval, MaxVerifyInterval, ", or 0s for none")
	}
	c.Store.validate(&p)
	validateDuration(&p, "history.retention", c.History.Retention.Duration, MinHistoryRetention, MaxHistoryRetention, "")
	validateSize(&p, "history.maxSize", c.History.MaxSize, MinHistorySize, MaxHistorySize)
	c.Snapshots.validate(&p)
	c.LocalAPI.validate(&p)
	c.validateKubernetesAPI(&p)
	c.Metrics.validate(&p)
	oneOf(&p, "health.readyWhen", c.Health.ReadyWhen, ReadyReadable, ReadyCaughtUp)
	if d := c.Health.MaxStaleness.Duration; d < 0 {
		p.add("health.maxStaleness", "%v is out of range: at least 0s, which means any age", d)
	}
	oneOf(&p, "log.level", c.Log.Level, LogDebug, LogInfo, LogWarn, LogError)
	oneOf(&p, "log.format", c.Log.Format, LogText, LogJSON)
	if s := c.Secrets.StoreOnDisk; s != "" && s != SecretsConsent {
		p.add("secrets.storeOnDisk", "it has to be exactly %q", SecretsConsent)
	}
	validateDuration(&p, "secrets.purgeAfter", c.Secrets.PurgeAfter.Duration, MinPurgeAfter, MaxPurgeAfter, "")
	c.validateProfile(&p)
	c.validateResources(&p)
	return p
}

// wrongKind returns the fault in the type of a file, and the field that has it; "" if there is none.
func (c TypeMeta) wrongKind() (fault, field string) {
	found := "neither apiVersion nor kind"
	switch {
	case c.APIVersion == APIVersion && c.Kind == Kind:
		return "", ""
	case c.APIVersion != "" && c.Kind != "":
		found = cut(c.APIVersion) + " " + cut(c.Kind)
	case c.APIVersion != "":
		found = "apiVersion " + cut(c.APIVersion) + " without a kind"
	case c.Kind != "":
		found = "kind " + cut(c.Kind) + " without an apiVersion"
	}
	if field = "apiVersion"; c.APIVersion == APIVersion {
		field = "kind"
	}
	return fmt.Sprintf("%s %s expected, found %s", APIVersion, Kind, found), field
}

func oneOf[T ~string](p *problems, field string, value T, allowed ...T) {
	if slices.Contains(allowed, value) {
		return
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	p.add(field, "%s is not one of %s", quote(string(value)), strings.Join(names, ", "))
}

func (s *Store) validate(p *problems) {
	oneOf(p, "store.type", s.Type, StoreBolt, StoreMemory)
	if s.Path == "" && s.Type == StoreBolt {
		p.add("store.path", "there is no default, because neither $XDG_STATE_HOME nor $HOME is set: give a path")
	}
	if d := s.CommitInterval.Duration; d <= 0 || d > MaxCommitInterval {
		p.add("store.commitInterval", "%v is out of range: more than 0s and at most %v", d, MaxCommitInterval)
	}
	validateSize(p, "store.maxSize", s.MaxSize, MinStoreSize, MaxStoreSize)
}

// validateDuration checks a duration against its limits. otherwise is appended to the message.
func validateDuration(p *problems, field string, d, lowest, highest time.Duration, otherwise string) {
	if d < lowest || d > highest {
		p.add(field, "%v is out of range: at least %v and at most %v%s", d, lowest, highest, otherwise)
	}
}

func validateSize(p *problems, field string, size resource.Quantity, lowest, highest int64) {
	atLeast, atMost := resource.NewQuantity(lowest, resource.BinarySI), resource.NewQuantity(highest, resource.BinarySI)
	if size.Cmp(*atLeast) < 0 || size.Cmp(*atMost) > 0 {
		p.add(field, "%s is out of range: at least %s and at most %s", size.String(), atLeast, atMost)
	} else if size.CmpInt64(size.Value()) != 0 { // Value rounds up
		p.add(field, "%s is not a whole number of bytes", size.String())
	}
}

func (s *Snapshots) validate(p *problems) {
	if d := s.Interval.Duration; d != 0 {
		validateDuration(p, "snapshots.interval", d, MinSnapshotInterval, MaxSnapshotAge, "; leave the field out for no schedule")
	}
	if s.Keep < 1 || s.Keep > MaxSnapshotsKept {
		p.add("snapshots.keep", "%d is out of range: at least 1 and at most %d", s.Keep, MaxSnapshotsKept)
	}
	validateDuration(p, "snapshots.maxAge", s.MaxAge.Duration, MinSnapshotInterval, MaxSnapshotAge, "")
}

func (a *LocalAPI) validate(p *problems) {
	const field = "localAPI.socket"
	if a.Socket == "" {
		p.add(field, "there is no default, because none of $XDG_RUNTIME_DIR, $XDG_STATE_HOME and $HOME is set: give a path")
		return
	}
	validateSocket(p, field, a.Socket)
}

func validateSocket(p *problems, field, path string) {
	switch {
	case strings.HasPrefix(path, "@"):
		p.add(field, "%s would be an abstract socket, which any user may connect to: give the path of a file", quote(path))
	case len(path) > MaxSocketPath:
		p.add(field, "%s has %d bytes, the kernel allows %d for a socket: give a shorter path", quote(path), len(path), MaxSocketPath)
	}
}

func (c *AgentConfiguration) validateKubernetesAPI(p *problems) {
	k := c.KubernetesAPI
	validateSocket(p, "kubernetesAPI.socket", k.Socket)
	if k.Socket != "" && k.Socket == c.LocalAPI.Socket {
		p.add("kubernetesAPI.socket", "%s is the socket of localAPI: give another path", quote(k.Socket))
	}
	if k.KeyFile == "" && k.CertFile != "" {
		p.add("kubernetesAPI.certFile", "its key is missing: give keyFile too, or neither for a certificate that the agent makes")
	}
	if k.CertFile == "" && k.KeyFile != "" {
		p.add("kubernetesAPI.keyFile", "its certificate is missing: give certFile too, or neither for a certificate that the agent makes")
	}
	k.validateAuthority(p)
	k.validateSigner(p)
	k.validateAccess(p)
	if k.Access.IssueKubeletCertificate && c.Profile == "" {
		p.add("kubernetesAPI.access.issueKubeletCertificate",
			"the certificate is for the kubelet of nodeName, which needs a profile: set profile: %s, or remove this field", ProfileNode)
	}
	c.validateForward(p)
	if k.Address == "" {
		return
	}
	const field = "kubernetesAPI.address"
	if k.Access.Enabled && !isLoopback(k.Address) {
		validateOpenAddress(p, field, k.Address)
	} else {
		validateAddress(p, field, k.Address, exampleAPIAddress, "without access only the agent's own token is known: set kubernetesAPI.access.enabled, or", "")
	}
	if _, port, err := net.SplitHostPort(k.Address); err == nil && port == "0" {
		p.add(field, "%s has port 0, which would be another one after each start: give a port, as in %s", quote(k.Address), exampleAPIAddress)
	}
	if c.Store.Path == "" && c.Store.Type == StoreMemory {
		p.add(field, "the token is kept beside the database, and store.path has no default, because neither $XDG_STATE_HOME nor $HOME is set: give store.path")
	}
}

func (k *KubernetesAPI) validateAuthority(p *problems) {
	const field = "kubernetesAPI.authorityCertFile"
	switch {
	case k.AuthorityCertFile == "" && k.AuthorityKeyFile == "":
	case k.AuthorityKeyFile == "":
		p.add(field, "its key is missing: give authorityKeyFile too, or neither for an authority that the agent makes")
	case k.AuthorityCertFile == "":
		p.add("kubernetesAPI.authorityKeyFile",
			"its certificate is missing: give authorityCertFile too, or neither for an authority that the agent makes")
	case k.CertFile != "" || k.KeyFile != "":
		p.add(field, "there is a certificate already: remove certFile and keyFile, or this field and authorityKeyFile")
	case k.Address == "":
		p.add(field, "the certificate is for kubernetesAPI.address, which is not set: give one, as in %s", exampleAPIAddress)
	}
}

// validateSigner checks the signer as the server does, which refuses other names.
func (k *KubernetesAPI) validateSigner(p *problems) {
	const field = "kubernetesAPI.signer"
	domain, name, ok := strings.Cut(k.Signer, "/")
	switch {
	case k.Signer == "":
	case k.CertFile != "" || k.KeyFile != "":
		p.add(field, "there is a certificate already: remove certFile and keyFile, or this field")
	case k.AuthorityCertFile != "" || k.AuthorityKeyFile != "":
		p.add(field, "there is an authority already: remove authorityCertFile and authorityKeyFile, or this field")
	case k.Address == "":
		p.add(field, "the certificate is for kubernetesAPI.address, which is not set: give one, as in %s", exampleAPIAddress)
	case !ok || len(validation.IsDNS1123Subdomain(domain)) > 0 || !strings.Contains(domain, "."),
		len(validation.IsDNS1123Subdomain(name)) > 0:
		p.add(field, "%s is not the name of a signer, as in %s or example.com/serving", quote(k.Signer), SignerKubeletServing)
	case domain == "kubernetes.io" && k.Signer != SignerKubeletServing:
		p.add(field, "%s issues no serving certificates: give %s, or a signer of your own", quote(k.Signer), SignerKubeletServing)
	}
}

func (k *KubernetesAPI) validateAccess(p *problems) {
	switch a := k.Access; {
	case !a.Enabled && a != Access{}:
		p.add("kubernetesAPI.access.enabled", "it is false, so that the other settings of access have no effect: set it, or remove them")
	case !a.Enabled:
	case k.Address == "":
		p.add("kubernetesAPI.access.enabled", "the cluster's users come by TCP, and kubernetesAPI.address is not set: give one, as in %s", exampleAPIAddress)
	default:
		validateDuration(p, "kubernetesAPI.access.rememberFor", a.RememberFor.Duration, MinRememberFor, MaxRememberFor, "")
	}
}

func (c *AgentConfiguration) validateProfile(p *problems) {
	switch {
	case c.Profile == "" && c.KubernetesAPI.Signer == "" && c.NodeName != "":
		p.add("nodeName", "it has no effect without a profile: set profile: %s, or remove it", ProfileNode)
	case c.NodeName == "" && !c.needsNode():
	case c.Profile != "" && c.Profile != ProfileNode:
		p.add("profile", "%s is not a profile: choose %s, or leave the field out and list the resources", quote(string(c.Profile)), ProfileNode)
	case c.NodeName == "":
		p.add("nodeName", "there is no default, because neither $NODE_NAME nor the host's name is set: give the name of this node")
	case len(validation.IsDNS1123Subdomain(c.NodeName)) > 0:
		p.add("nodeName", "%s is not the name of a node: lower-case letters, digits, '-' and '.', with a letter or digit at both ends; "+
			"the default is $NODE_NAME, else the host's name", quote(c.NodeName))
	}
}

func (m *Metrics) validate(p *problems) {
	validateAddress(p, "metrics.address", m.Address, DefaultMetricsAddress,
		"metrics are served without authentication, so only there:", ", or disabled: true")
}

// validateAddress checks an address that has to be on loopback, for the given reason. otherwise is
// appended to the message.
func validateAddress(p *problems, field, address, example, reason, otherwise string) {
	if _, port, ok := splitAddress(p, field, address, example); ok && !isLoopback(address) {
		p.add(field, "%s is not on loopback, and %s use 127.0.0.1:%s or [::1]:%s%s", quote(address), reason, port, port, otherwise)
	}
}

// validateOpenAddress checks an address that other machines can reach. It has to be one IP address: a
// wildcard would be all that the machine ever gets, and no certificate can name them; a name would
// depend on a resolver.
func validateOpenAddress(p *problems, field, address string) {
	host, port, ok := splitAddress(p, field, address, exampleNodeAddress)
	if !ok {
		return
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip.Unmap().IsUnspecified():
		p.add(field, "%s would be every address of this machine, also those that it gets later: give one of them, as in %s", quote(address), exampleNodeAddress)
	case err != nil:
		p.add(field, "%s is not an IP address and a port, as in %s", quote(address), exampleNodeAddress)
	case ip.Zone() != "":
		p.add(field, "%s has a zone, which no certificate can name: give an address without, or [::1]:%s", quote(address), port)
	case ip.IsMulticast():
		p.add(field, "%s is a multicast address: give one of this machine, as in %s", quote(address), exampleNodeAddress)
	}
}

// splitAddress splits host:port; ok is false if the address is not of that form.
func splitAddress(p *problems, field, address, example string) (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		p.add(field, "%s is not host:port, as in %s", quote(address), example)
		return "", "", false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		p.add(field, "%s has no port between 0 and 65535 at its end", quote(address))
	}
	return host, port, true
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
