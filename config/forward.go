package config

import "fmt"

// Forward sends the requests of the cluster's users that the cache can't answer, such as writes, to the
// server: with the bearer token of the caller, or with a client certificate of the same user.
type Forward struct {
	// Enabled turns it on. It needs Access.
	Enabled bool `json:"enabled,omitempty"`
	// Identities are the credentials for callers that have a client certificate, each user once.
	Identities []Identity `json:"identities,omitempty"`
	// RememberTokens keeps the service account tokens that the server issues, and repeats them to the
	// same user while the server can't be reached, until they expire. It needs Encryption.
	RememberTokens bool `json:"rememberTokens,omitempty"`
}

// Identity is a client certificate that is used for callers with its user and groups, or, for the kubelet to
// which the agent issues a certificate, a token of the kubelet.
type Identity struct {
	// Kubeconfig is a file with the certificate and its key, or with the names of their files, or with a
	// token, the name of its file, or an exec plugin. Files are read again when they change. Nothing else
	// of it is used.
	Kubeconfig string `json:"kubeconfig"`
}

// Kubeconfigs returns the files of the identities.
func (f Forward) Kubeconfigs() []string {
	files := make([]string, len(f.Identities))
	for i, x := range f.Identities {
		files[i] = x.Kubeconfig
	}
	return files
}

func (c *AgentConfiguration) validateForward(p *problems) {
	const field = "kubernetesAPI.forward"
	k := c.KubernetesAPI
	f := k.Forward
	switch {
	case f.RememberTokens && !f.Enabled:
		p.add(field+".rememberTokens", "tokens are issued by the server, and kubernetesAPI.forward.enabled is not set: set it")
	case f.RememberTokens && c.Encryption.KeyFile == "":
		p.add(field+".rememberTokens", "tokens are only stored encrypted, and encryption.keyFile is not set: give a key, or remove this field")
	}
	switch {
	case !f.Enabled && len(f.Identities) > 0:
		p.add(field+".enabled", "it is false, so that identities have no effect: set it, or remove them")
	case f.Enabled && !k.Access.Enabled:
		p.add(field+".enabled", "requests are forwarded with the credentials of the cluster's users, and kubernetesAPI.access.enabled is not set: set it")
	}
	seen := map[string]bool{}
	for i, x := range f.Identities {
		switch at := fmt.Sprintf("%s.identities[%d].kubeconfig", field, i); {
		case x.Kubeconfig == "":
			p.add(at, "it is empty: give the file of a kubeconfig with a client certificate")
		case seen[x.Kubeconfig]:
			p.add(at, "%s is there twice: remove one", quote(x.Kubeconfig))
		}
		seen[x.Kubeconfig] = true
	}
}
