//go:build tools

// Package apiserver pins the kube-apiserver and the kubectl that the test
// control plane runs, and the kube-proxy and the kubelet of its nodes. It is a
// module of its own because kubernetes replaces its staging modules, which no
// other module here should have to do.
package apiserver

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
