package driver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/bench/result"
	"golang.org/x/sync/errgroup"
)

// stream lets peers follow changes of pods at a rate. Unless it is durable, it starts without
// stored data; the start is not measured.
func (d *Driver) stream(ctx context.Context, s *server, number int, st Stream) (_ []result.Stream, err error) {
	_, marks, err := s.change(ctx, 0)
	if err != nil {
		return nil, err
	}
	var subjects []subject
	defer func() {
		for _, p := range subjects {
			if err != nil {
				err = errors.Join(err, p.kill())
			} else {
				err = p.stop()
			}
		}
	}()
	for _, name := range st.Peers {
		p, _, err := d.measured(ctx, s, launch{
			name: name, dir: filepath.Join(d.scratch, name), kubeconfig: s.kubeconfig, resources: s.resources,
			read: s.readMark(), marks: marks, handler: true, durable: st.Durable,
		})
		if err != nil {
			return nil, fmt.Errorf("changes for %s: %w", name, err)
		}
		subjects = append(subjects, p)
		if err := p.reset(ctx); err != nil { // the delays of the start
			return nil, err
		}
	}
	before, collectors := make([]usage, len(subjects)), make([]peer.Collector, len(subjects))
	for i, p := range subjects {
		if before[i], err = usageOf(p); err != nil {
			return nil, err
		}
		if c, ok := p.(*child); ok {
			collectors[i] = c.collector
		}
	}
	peaks := make([]func() int64, len(subjects))
	for i, p := range subjects {
		peaks[i] = sync.OnceValue(watchPeak(p.pid()))
		defer peaks[i]()
	}
	if st.Busy {
		end, err := loops(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	began := time.Now()
	changes, err := s.changeAt(ctx, s.changing(), st.Rate, st.Duration, s.touch)
	if err != nil {
		return nil, err
	}
	all := make([]result.Stream, len(subjects))
	for i, p := range subjects {
		wanted := 0
		if st.Durable && st.Peers[i] == LibraryBolt {
			wanted = changes
		}
		handled, durable, err := allDelays(ctx, p, changes, wanted)
		if err != nil {
			return nil, fmt.Errorf("changes for %s: %w", st.Peers[i], err)
		}
		all[i] = result.Stream{
			Peer: st.Peers[i], Round: number, Rate: st.Rate, Changes: changes, Beside: len(st.Peers) - 1, Busy: st.Busy,
			Handled: result.DelayOf(handled), Durable: result.DelayOf(durable),
		}
	}
	for i, p := range subjects {
		u, err := usageOf(p)
		if err != nil {
			return nil, err
		}
		r := &all[i]
		if c, ok := p.(*child); ok {
			r.Collector = c.collector.Share(collectors[i])
		}
		r.PeakOwn = peaks[i]()
		r.Seconds, r.CPU, r.WrittenBytes = time.Since(began).Seconds(), u.cpu-before[i].cpu, u.written-before[i].written
		d.log("%3.0f changes/s    %-18s handled %6.1f ms, p99 %6.1f; durable %6.1f s, p99 %6.1f; %9d bytes written; "+
			"cpu %4.2f s, garbage collector %2.0f %%, own %5d MB, busy %v", st.Rate, r.Peer, 1e3*r.Handled.P50, 1e3*r.Handled.P99,
			r.Durable.P50, r.Durable.P99, r.WrittenBytes, r.CPU, 100*r.Collector, r.PeakOwn>>20, r.Busy)
	}
	return all, nil
}

// loops starts a process for each CPU that does nothing but take it, until the returned function is called.
func loops(ctx context.Context) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all []*exec.Cmd
	end = func() {
		cancel()
		for _, c := range all {
			_ = c.Wait() // it was killed
		}
	}
	for range runtime.NumCPU() {
		c := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			end()
			return nil, fmt.Errorf("busy loop: %w", err)
		}
		all = append(all, c)
	}
	return end, nil
}

// usage is the resources that a process has used so far.
type usage struct {
	cpu     float64 // seconds
	written int64   // bytes
}

func usageOf(p subject) (u usage, err error) {
	cpu, err := measure.CPU(p.pid())
	if err != nil {
		return u, err
	}
	u.cpu = cpu.Seconds()
	u.written, err = measure.Written(p.pid())
	return u, err
}

// allDelays waits until a peer has received all changes, and until wanted of them are durable.
func allDelays(ctx context.Context, p subject, changes, wanted int) (handled, durable []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		h, c, err := p.delays(ctx)
		if err != nil {
			return nil, nil, err
		}
		handled, durable = append(handled, h...), append(durable, c...)
		if len(handled) >= changes && len(durable) >= wanted {
			return handled, durable, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("told of %d of %d changes, and %d of %d are durable: %w", len(handled), changes, len(durable), wanted, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// changing returns the keys of the pods that change at a rate: all but readMark's, the first.
func (s *server) changing() []string { return s.keys[s.resources[0].Name][1:] }

// changeAt changes the pods with the keys one after another at an even rate by touch, and returns how
// many. If the server is slower, it is fewer.
func (s *server) changeAt(ctx context.Context, keys []string, rate float64, d time.Duration, touch toucher) (int, error) {
	pods := s.resources[0]
	order := s.random.Perm(len(keys))
	n := int(rate * d.Seconds())
	results := make([]string, n)
	ticker := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer ticker.Stop()
	var g errgroup.Group
	g.SetLimit(changers)
	for i := range n {
		<-ticker.C
		if ctx.Err() != nil {
			break
		}
		// Consecutive changes are of different objects: a cache would merge two quick changes of
		// one.
		g.Go(func() error {
			rv, err := touch(ctx, pods, keys[order[i%len(order)]])
			results[i] = rv
			return err
		})
	}
	if err := errors.Join(g.Wait(), ctx.Err()); err != nil {
		return 0, err
	}
	for i, rv := range results {
		s.versions[pods.Name][keys[order[i%len(order)]]] = rv
	}
	return n, nil
}
