package kubernetes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/kubeapi/signed"
)

// openKubelet issues the kubelet's certificate if it is configured, and has it accepted. A disk that takes
// no writes, or a bad certFile, does not stop the agent: a kubelet that has its files goes on with them.
func (a *API) openKubelet(callers *access.AuthenticatorOptions) {
	cfg := a.opts.Config()
	if !cfg.KubernetesAPI.Access.IssueKubeletCertificate {
		return
	}
	a.kubelet = a.credentials.NewKubelet(a.opts.dir(), cfg.NodeName)
	callers.Kubelet = a.kubelet.Accept()
	err := a.kubelet.Renew(a.opts.Clock.Now())
	if err == nil {
		err = a.writeKubeletKubeconfig()
	}
	if err != nil {
		a.opts.Log.Error("kubernetesAPI: the kubelet's certificate or kubeconfig can't be written; the next start retries",
			"error", err)
	}
}

// writeKubeletKubeconfig writes a kubeconfig that trusts every certificate that may be served.
func (a *API) writeKubeletKubeconfig() (err error) {
	cfg, ca := a.opts.Config().KubernetesAPI, a.credentials.CA
	if file := cfg.TrustedFile(); file != "" {
		ca, err = os.ReadFile(file)
	}
	if a.signed != nil {
		ca, err = signed.Authorities(a.opts.dir(), ca)
		if errors.Is(err, fs.ErrNotExist) { // runSigned writes them
			return nil
		}
		if errors.Is(err, signed.ErrNotTrusted) { // which is logged there
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return a.kubelet.WriteKubeconfig(cfg.Address, ca)
}

// removeKubelet removes the files of a kubelet that was configured before. Nothing accepts its
// certificate any more.
func (a *API) removeKubelet() {
	if err := serving.RemoveKubelet(a.opts.dir()); err != nil {
		a.opts.Log.Error("kubernetesAPI: the kubelet's certificate is not accepted, but can't be deleted; the next start retries",
			"error", err)
	}
}

// renewKubelet renews the kubelet's certificate until ctx ends. It looks often, since a clock that is
// corrected may be months ahead of the one at the last look.
func (a *API) renewKubelet(ctx context.Context) {
	wait := lookEvery
	for sleep.For(ctx, a.opts.Clock, wait) == nil {
		wait = lookEvery
		if err := a.kubelet.Renew(a.opts.Clock.Now()); err != nil {
			a.opts.Log.Error("kubernetesAPI: the kubelet's certificate can't be renewed; retrying in an hour", "error", err)
			wait = time.Hour
		}
	}
}
