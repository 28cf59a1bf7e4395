package serving

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns a kubeconfig for the Kubernetes API at an address, whose certificate is of the
// authorities ca, in PEM.
func Kubeconfig(address string, ca []byte, user *clientcmdapi.AuthInfo) ([]byte, error) {
	const name = "snapcache"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: ca}
	kubeconfig.AuthInfos[name] = user
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	return clientcmd.Write(*kubeconfig)
}
