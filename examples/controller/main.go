// Controller is a small, complete controller on a durable cache. For each ConfigMap with the label
// "digest: wanted" it keeps a file with a digest of its data, named namespace.name, and removes the
// file with the ConfigMap.
//
// After a kill and a restart it does not list the ConfigMaps again: its cache has the state before,
// and the server sends the changes since. Its results are in the files, so it does only the
// remaining work.
//
//	go run ./examples/controller -kubeconfig ~/.kube/config -state /tmp/digests
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/informer/durable"
)

func main() {
	// The signals are handled until the process ends.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of the kubeconfig")
	state := flag.String("state", "digests", "directory for the cache and the files")
	workers := flag.Int("workers", 2, "number of ConfigMaps processed at once")
	flag.Parse()
	if err := run(ctx, *kubeconfig, *state, *workers); err != nil {
		slog.Error("controller failed", "error", err)
		os.Exit(1)
	}
}

// run runs the controller until ctx ends.
func run(ctx context.Context, kubeconfig, state string, workers int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	cached, err := durable.Open(ctx, durable.Options{
		Dir: state, Config: config, Scheme: scheme,
		Informers: []informer.Option{informer.WithIndexVersion(byDigest, "1")},
	})
	if err != nil {
		return err
	}
	return cached.Run(ctx, func(ctx context.Context) error {
		factory, err := cached.Factory(informer.FactoryOptions{})
		if err != nil {
			return err
		}
		c, err := newController(factory.InformerFor(&corev1.ConfigMap{}), state)
		if err != nil {
			return err
		}
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
		if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			return fmt.Errorf("wait for the cache: %w", err)
		}
		return c.run(ctx, workers)
	})
}
