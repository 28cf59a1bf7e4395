package informer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// BenchmarkLoop measures how long a loop takes for an event that is alone in its batch: an update of
// one of 5,000 objects of 2 kB in a database, from the queue until readers see it. It is not made
// durable. With handlers the old object is read too.
func BenchmarkLoop(b *testing.B) {
	for _, handlers := range []bool{false, true} {
		b.Run("handlers="+strconv.FormatBool(handlers), func(b *testing.B) { benchLoop(b, handlers) })
	}
}

func benchLoop(b *testing.B, handlers bool) {
	const count = 5_000
	db, err := bolt.Open(filepath.Join(b.TempDir(), "cache.db"), bolt.Options{FlushInterval: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	node := store.Index{Name: "node", Spec: "1", Func: func(*object.Object) []string { return []string{"n1"} }}
	coll, err := db.Open(store.Info{ID: "pods", Resource: "pods"}, node)
	if err != nil {
		b.Fatal(err)
	}
	rv := 0
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // choices of a benchmark
	pod := func(n int) *object.Object {
		rv++
		o, err := object.FromValid(fmt.Appendf(nil,
			`{"metadata":{"namespace":"ns-%d","name":"pod-%d","uid":"%d","resourceVersion":"%d"},"spec":{"text":"%x%01500d"}}`,
			n%20, n, n, rv, random.Perm(60), n))
		if err != nil {
			b.Fatal(err)
		}
		return o
	}
	queue := deltafifo.New(deltafifo.Options{KnownObjects: pipeline.KnownObjects{Collection: coll}})
	applied := make(chan struct{})
	opts := pipeline.LoopOptions{Queue: queue, Collection: coll, Around: func(_ deltafifo.Batch, apply func() error) error {
		defer func() { applied <- struct{}{} }()
		return apply()
	}}
	r, err := coll.Replace()
	if err != nil {
		b.Fatal(err)
	}
	for n := range count {
		o := pod(n)
		if err := r.Apply([]store.Change{{Key: o.Key(), Object: o}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Commit(store.Checkpoint{RV: strconv.Itoa(rv)}); err != nil {
		b.Fatal(err)
	}
	if handlers {
		processor := informer.NewProcessor(informer.ProcessorOptions{Collection: coll})
		if err := processor.Start(); err != nil {
			b.Fatal(err)
		}
		defer processor.Stop()
		opts.Sinks = []pipeline.Sink{processor}
	}
	queue.Start(strconv.Itoa(rv))
	done := make(chan error, 1)
	go func() { done <- pipeline.NewLoop(opts).Run(context.Background()) }()
	var updates []*object.Object
	for range 256 {
		updates = append(updates, pod(random.IntN(count)))
	}
	for n := 0; b.Loop(); n++ {
		if n == len(updates) {
			b.StopTimer()
			if err := db.Flush(); err != nil {
				b.Fatal(err)
			}
			for n = range updates {
				updates[n] = pod(random.IntN(count))
			}
			n = 0
			b.StartTimer()
		}
		if err := queue.Update(updates[n]); err != nil {
			b.Fatal(err)
		}
		<-applied
	}
	queue.Close()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
