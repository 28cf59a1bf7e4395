package kubernetes

import (
	"context"
	"net"

	"github.com/snapcache/snapcache/kubeapi/signed"
	"github.com/snapcache/snapcache/upstream"
)

// openSigned opens the certificate of a signer, if one is configured. Without it, or until it is issued, the
// agent's own is served.
func (a *API) openSigned() {
	cfg := a.opts.Config()
	if cfg.KubernetesAPI.Signer == "" {
		return
	}
	host, _, err := net.SplitHostPort(cfg.KubernetesAPI.Address)
	if err == nil {
		a.signed, err = signed.Open(signed.Options{
			Signer: cfg.KubernetesAPI.Signer, NodeName: cfg.NodeName, Host: host,
			Dir: a.opts.dir(), Owner: a.credentials.PublicKey(), Clock: a.opts.Clock, Log: a.opts.Log,
		})
	}
	if err != nil {
		a.opts.Log.Error("kubernetesAPI: the signer is not asked for a certificate", "error", err)
		return
	}
	a.credentials.Issued = a.signed.Get
}

// runSigned keeps the certificate of the signer, until ctx ends. The kubelet's kubeconfig has the authorities
// of the cluster too, which are known now.
func (a *API) runSigned(ctx context.Context, cluster *upstream.Cluster) {
	err := signed.WriteAuthorities(a.opts.dir(), cluster)
	if err == nil && a.kubelet != nil {
		err = a.writeKubeletKubeconfig()
	}
	if err != nil {
		a.opts.Log.Error("kubernetesAPI: kubeconfigs for the API lack the cluster's CA; the next start retries",
			"error", err)
	}
	a.signed.Run(ctx, cluster)
}

// removeSigned removes the certificate of a signer that was configured before.
func (a *API) removeSigned() {
	if err := signed.Remove(a.opts.dir()); err != nil {
		a.opts.Log.Error("kubernetesAPI: the signer's certificate is not used, but can't be deleted; the next start retries",
			"error", err)
	}
}
