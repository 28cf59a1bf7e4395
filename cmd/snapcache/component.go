package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// serviceAccountToken is the file in which each pod has its token.
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// kubeletCertificate has a kubelet's newest client certificate and its key.
const kubeletCertificate = "/var/lib/kubelet/pki/kubelet-client-current.pem"

const kubelet = "kubelet"

// component is a client that has credentials of its own on a node.
type component struct {
	name string
	user clientcmdapi.AuthInfo
}

var components = []component{
	{kubelet, clientcmdapi.AuthInfo{ClientCertificate: kubeletCertificate, ClientKey: kubeletCertificate}},
	{"kube-proxy", clientcmdapi.AuthInfo{TokenFile: serviceAccountToken}},
	{"coredns", clientcmdapi.AuthInfo{TokenFile: serviceAccountToken}},
	{"prometheus", clientcmdapi.AuthInfo{TokenFile: serviceAccountToken}},
	{"in-cluster", clientcmdapi.AuthInfo{TokenFile: serviceAccountToken}},
}

func componentNames() []string {
	names := make([]string, len(components))
	for i, c := range components {
		names[i] = c.name
	}
	return names
}

// credentials returns those of a component of the node, or of the current context of a kubeconfig if
// one is given; nil for neither.
func credentials(name, kubeconfig string) (*clientcmdapi.AuthInfo, error) {
	var user *clientcmdapi.AuthInfo
	if name != "" {
		i := slices.Index(componentNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("--for %q: choose one of %s; in-cluster is for any other pod", name, strings.Join(componentNames(), ", "))
		}
		user = components[i].user.DeepCopy()
	}
	if kubeconfig != "" {
		return credentialsIn(kubeconfig)
	}
	return user, nil
}

// credentialsIn returns the credentials of the current context of a kubeconfig. Names of files in
// them are absolute.
func credentialsIn(path string) (*clientcmdapi.AuthInfo, error) {
	found, err := clientcmd.LoadFromFile(path)
	if err == nil {
		err = clientcmd.ResolveLocalPaths(found)
	}
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	current := found.Contexts[found.CurrentContext]
	if current == nil {
		return nil, fmt.Errorf("--from: %s has no context %q: set its current-context", path, found.CurrentContext)
	}
	user := found.AuthInfos[current.AuthInfo]
	if user == nil {
		return nil, fmt.Errorf("--from: %s has no user %q", path, current.AuthInfo)
	}
	return user, nil
}
