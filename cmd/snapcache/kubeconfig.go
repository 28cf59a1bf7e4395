package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/kubeapi/signed"
	"github.com/snapcache/snapcache/store"
)

const forFlag = "for"

func kubeconfigCommand() *cli.Command {
	return &cli.Command{
		Name:      "kubeconfig",
		Usage:     "print a kubeconfig for the agent's Kubernetes API",
		UsageText: "snapcache kubeconfig [--config FILE] [--for COMPONENT] [--from KUBECONFIG]",
		Description: `Prints a kubeconfig with which kubectl and other clients read the cache, through the
agent's Kubernetes API. That has to be configured: kubernetesAPI.address.

   snapcache kubeconfig --config agent.yaml > cache.kubeconfig
   kubectl --kubeconfig cache.kubeconfig get pods -A
   kubectl --kubeconfig <(snapcache kubeconfig --config agent.yaml) get nodes

The kubeconfig contains the token of the API: every reader of it can read all that is
cached. It stays valid when the agent restarts. If kubernetesAPI.certFile or
authorityCertFile is set, it contains the certificates in that file, and has to be printed
again when they change.
With kubernetesAPI.signer it contains the CA of the agent's kubeconfig, beside the agent's
own, which counts until the signer has issued a certificate.

With --for it is for a component of the node, which keeps its own credentials: the
kubelet its client certificate, or the one that the agent issues to it, the others the
service account token of their pod. It names their files, and contains no token. With
--from the credentials are those of an existing kubeconfig. Both need
kubernetesAPI.access, and a kubelet kubernetesAPI.forward.

   snapcache kubeconfig --config agent.yaml --for kubelet
   snapcache kubeconfig --config agent.yaml --for kubelet --from /etc/kubernetes/kubelet.conf
   snapcache kubeconfig --config agent.yaml --for in-cluster`,
		Flags: []cli.Flag{
			configFileFlag(),
			&cli.StringFlag{Name: forFlag, Usage: "a kubeconfig for this `COMPONENT`: " + strings.Join(components, ", ")},
			&cli.StringFlag{Name: fromFlag, Usage: "with the credentials in this `KUBECONFIG`, of the user of its current context", TakesFile: true},
		},
		Action: atMost(0, printKubeconfig),
	}
}

func printKubeconfig(c *cli.Context) error {
	cfg, err := validConfig(c)
	if err != nil {
		return err
	}
	component := c.String(forFlag)
	user, err := credentials(cfg, component, c.String(fromFlag))
	if err != nil {
		return withCode(exitUsage, err)
	}
	kubeconfig, err := kubeconfigOf(cfg, user)
	if err != nil {
		return err
	}
	if component == kubelet && !cfg.KubernetesAPI.Forward.Enabled {
		return usagef("a kubelet reports its node's status, which would fail: set kubernetesAPI.forward.enabled, and name a kubeconfig with the kubelet's certificate in kubernetesAPI.forward.identities")
	}
	return writeStrings(c.App.Writer, string(kubeconfig))
}

// kubeconfigOf returns a kubeconfig for the Kubernetes API of the agent with this configuration. The
// user is the bearer of the agent's own token if user is nil.
func kubeconfigOf(cfg *config.AgentConfiguration, user *clientcmdapi.AuthInfo) ([]byte, error) {
	api := cfg.KubernetesAPI
	switch {
	case !api.Enabled():
		return nil, usagef("the Kubernetes API is not configured: set kubernetesAPI.address, as in 127.0.0.1:6445, or give the agent's configuration with --config")
	case api.Address == "":
		return nil, usagef("the Kubernetes API is served only on the socket %s, which a kubeconfig can't name: set kubernetesAPI.address too, as in 127.0.0.1:6445", api.Socket)
	case user != nil && !api.Access.Enabled:
		return nil, usagef("the Kubernetes API lets in only the bearer of the agent's token, and no user of the cluster: set kubernetesAPI.access.enabled")
	}
	dir := serving.Dir(cfg.Store.Path)
	ca, token, err := serving.Read(dir)
	if file := api.TrustedFile(); err == nil && file != "" {
		ca, err = os.ReadFile(file)
	}
	if err == nil && api.Signer != "" {
		ca, err = signed.Authorities(dir, ca)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, &store.Error{Err: err, Hint: "run this as root or as the agent's user"}
	case errors.Is(err, fs.ErrNotExist):
		return nil, &store.Error{Err: err, Hint: "the agent makes its credentials at its first start with kubernetesAPI.address: start it (snapcache run)"}
	case errors.Is(err, signed.ErrNotTrusted):
		return nil, &store.Error{
			Err:  err,
			Hint: "take a signer of that CA, or write a kubeconfig with the signer's CA as certificate-authority-data",
		}
	case err != nil:
		return nil, err
	}
	if user == nil {
		user = &clientcmdapi.AuthInfo{Token: token}
	}
	return serving.Kubeconfig(api.Address, ca, user)
}

// serviceAccountToken is the file in which each pod has its token.
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// kubeletCertificate has a kubelet's newest client certificate and its key.
const kubeletCertificate = "/var/lib/kubelet/pki/kubelet-client-current.pem"

const kubelet = "kubelet"

// components are the clients that have credentials of their own on a node.
var components = []string{kubelet, "kube-proxy", "coredns", "prometheus", "in-cluster"}

// credentials returns the credentials in a kubeconfig, if one is given, or of a component; nil for neither.
func credentials(cfg *config.AgentConfiguration, name, kubeconfig string) (*clientcmdapi.AuthInfo, error) {
	switch {
	case name != "" && !slices.Contains(components, name):
		return nil, fmt.Errorf("--for %q: choose one of %s; in-cluster is for any other pod", name, strings.Join(components, ", "))
	case kubeconfig != "":
		return credentialsIn(kubeconfig)
	case name == "":
		return nil, nil //nolint:nilnil // neither is not an error
	case name == kubelet && cfg.KubernetesAPI.Access.IssueKubeletCertificate:
		file, err := filepath.Abs(serving.KubeletCertificate(serving.Dir(cfg.Store.Path)))
		return &clientcmdapi.AuthInfo{ClientCertificate: file, ClientKey: file}, err
	case name == kubelet:
		return &clientcmdapi.AuthInfo{ClientCertificate: kubeletCertificate, ClientKey: kubeletCertificate}, nil
	}
	return &clientcmdapi.AuthInfo{TokenFile: serviceAccountToken}, nil
}

// credentialsIn returns the current context's credentials, with absolute names of files.
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
