package driver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// NoCache is the client of reads without a cache.
const NoCache = "controller-runtime's client without a cache"

// live measures reads of random pods from the apiserver, each kind for d, by controller-runtime's client as it reads
// objects in CacheOptions.DisableFor.
func (s *server) live(ctx context.Context, d time.Duration) (all []result.Figure, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reads without a cache: %w", err)
	}
	config.QPS = -1
	log.SetLogger(klog.NewKlogr())
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("reads without a cache: %w", err)
	}
	keys := s.keys[s.resources[0].Name]
	get := func() error {
		namespace, name, _ := strings.Cut(keys[rand.IntN(len(keys))], "/") //nolint:gosec // any
		return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Pod{})
	}
	list := func() error {
		namespace, _, _ := strings.Cut(keys[rand.IntN(len(keys))], "/") //nolint:gosec // any
		return c.List(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	}
	for _, k := range []struct {
		what   string
		atOnce int
		read   func() error
	}{{"a get", 1, get}, {fmt.Sprintf("%d gets at once", atOnce), atOnce, get}, {"a list of a namespace", 1, list}} {
		before, err := s.cpu()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		took, err := repeated(k.atOnce, d, k.read)
		if err != nil {
			return nil, fmt.Errorf("%s without a cache: %w", k.what, err)
		}
		seconds := time.Since(began).Seconds()
		after, err := s.cpu()
		if err != nil {
			return nil, err
		}
		n := float64(len(took))
		figure := func(what, unit string, value float64) {
			all = append(all, result.Figure{What: k.what + ": " + what, Of: NoCache, Unit: unit, Values: []float64{value}})
		}
		figure("requests a second", "", n/seconds)
		figure("median", "s", measure.Percentile(took, 50))
		figure("p99", "s", measure.Percentile(took, 99))
		figure("apiserver's CPU for each", "s", (after-before-s.idle*seconds)/n)
	}
	return all, nil
}

// repeated calls read for d, so many times at once, and returns the seconds that each call took.
func repeated(atOnce int, d time.Duration, read func() error) ([]float64, error) {
	end, took := time.Now().Add(d), make([][]float64, atOnce)
	var g errgroup.Group
	for i := range took {
		g.Go(func() error {
			for began := time.Now(); began.Before(end); began = time.Now() {
				if err := read(); err != nil {
					return err
				}
				took[i] = append(took[i], time.Since(began).Seconds())
			}
			return nil
		})
	}
	err := g.Wait()
	return slices.Concat(took...), err
}
