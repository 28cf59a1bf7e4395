// Package unmodified makes the informers of a program durable whose source does not know of snapcache.
// cmd/snapcache-overlay links it into the program; see docs/unmodified.md.
package unmodified

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme" //nolint:depguard // the kinds of built-in types, of which such a program has some
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/informer/durable"
)

// DirVariable is the environment variable with the directory of the program's cache.
const DirVariable = "SNAPCACHE_INFORMER_DIR"

// Constructor returns the constructor of the program's informers; nil without [DirVariable], for client-go's own.
//
// The file is opened for the first informer, so that a call of the program which makes none does not wait for it. If it
// can't be opened, the informers are client-go's, and the log has a warning. The cache is not closed: the end of the
// program is as a crash, which loses seconds that the server sends again.
func Constructor() informer.Constructor {
	dir := os.Getenv(DirVariable)
	if dir == "" {
		return nil
	}
	open := sync.OnceValue(func() informer.Constructor {
		c, err := open(dir, os.Args[1:])
		if err != nil {
			slog.Warn("the informers are not durable: they are in memory, and each start lists everything", "dir", dir, "error", err)
		}
		return c
	})
	return func(lw cache.ListerWatcher, example runtime.Object, opts cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
		if c := open(); c != nil {
			return c(lw, example, opts)
		}
		return nil
	}
}

// open returns the constructor of a cache in a directory; nil if the cache is not durable.
func open(dir string, args []string) (informer.Constructor, error) {
	config, err := configOf(args)
	if err != nil {
		return nil, err
	}
	c, err := durable.Open(context.Background(), durable.Options{Dir: dir, Config: config, Scheme: scheme.Scheme})
	if err != nil {
		return nil, err
	}
	return c.Constructor(), nil
}

// configOf returns the connection that most programs would use: of the argument --kubeconfig, of KUBECONFIG, of the pod,
// or of ~/.kube/config. Its cluster is the identity of the stored objects.
func configOf(args []string) (*rest.Config, error) {
	file := kubeconfigOf(args)
	if file == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if config, err := rest.InClusterConfig(); err == nil {
			return config, nil
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("which cluster the program uses is not known, from --kubeconfig, KUBECONFIG or a service account: %w", err)
	}
	return config, nil
}

// kubeconfigOf returns the value of the flag kubeconfig.
func kubeconfigOf(args []string) string {
	for i, arg := range args {
		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || name != "kubeconfig" {
			continue
		}
		if !ok && i+1 < len(args) {
			value = args[i+1]
		}
		return value
	}
	return ""
}
