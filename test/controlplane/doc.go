// Package controlplane runs a real etcd and a real kube-apiserver for tests and
// demonstrations.
//
// The binaries are built once from the modules in the folders etcd and
// apiserver beside this file, and shared by every process of the machine that
// works in this checkout (see [Build]). A [ControlPlane] listens on 127.0.0.1
// only, on ports of its own, so any number of them run side by side.
// [BuildCoreDNS], [BuildPrometheus] and [BuildNode] build a CoreDNS, a Prometheus, a kubelet and a
// kube-proxy in the same way, as clients for tests.
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{})
//	if err != nil {
//		return err
//	}
//	defer cp.Stop()
//	kubeconfig, err := cp.Kubeconfig(controlplane.Reader)
//
// There is no controller-manager, no scheduler and, unless a test starts one, no kubelet.
// Nothing is garbage-collected, a deployment makes no pods, a namespace gets no
// default service account, and a deleted namespace stays Terminating.
//
// Invariants:
//
//   - The apiserver keeps its address, its certificate authority and its tokens
//     over every stop, kill and restart, whether of itself or of etcd.
//   - etcd runs with --unsafe-no-fsync: its data survives a kill of the process,
//     not a power cut of the machine.
//   - On Linux the two processes die with the process that started them.
package controlplane
