package driver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/peer"
	"golang.org/x/sync/errgroup"
)

// arrivals are when the events of changes reached watches.
type arrivals struct {
	mu    sync.Mutex
	count int
	last  map[int64]time.Time // of each change, by the time at which it was sent, in ns
}

func (a *arrivals) add(stamp int64, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	a.last[stamp] = at
}

// apiWatches opens watches at each of the servers in turn, while pods change at a rate, and again in
// the other order. If one is set, each watch is of one namespace, of a tenth of them, in which all changes
// are: with more namespaces, deliveries would take less than the apiserver's other work varies by.
//
// The pods are changed in etcd, because the writes of an apiserver take far more than its deliveries.
// Each server also works without these watches, to follow the changes. That work is measured while the
// watches are at the other server, and subtracted. Round by round, because it varies by more than the
// cost of a few deliveries.
func (d *Driver) apiWatches(ctx context.Context, s *server, sides []*apiSide, name string, plan API, one bool, rate Rate, f *figures) error {
	paths, keys := []string{"/api/v1/pods"}, s.changing()
	if one {
		paths = nil
		keys = keys[:len(keys)/10]
		for _, key := range keys {
			namespace, _, _ := strings.Cut(key, "/")
			if path := "/api/v1/namespaces/" + namespace + "/pods"; !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	w := watching{name: name, paths: paths, keys: keys, each: max(1, plan.Watches/len(paths)), rate: rate, f: f}
	f.add(name+Watches, EachServer, "", float64(w.each*len(paths)))
	f.add(name+Reached, EachServer, "", float64(w.each))
	for round := range plan.Rounds {
		w.with, w.without = map[string]float64{}, map[string]float64{}
		for i := range sides {
			x, y := sides[(round+i)%2], sides[(round+i+1)%2]
			if err := d.apiDeliveries(ctx, s, x, y, &w); err != nil {
				return err
			}
			if one && round == 0 { // later ones reuse the memory of these
				f.add("a watch that waits: memory", x.name, "B", w.memory)
			}
		}
		for _, x := range sides {
			f.add(name+": CPU with them", x.name, "s", w.with[x.name])
			f.add(name+": CPU without them", x.name, "s", w.without[x.name])
			f.add(name+": CPU for a delivery", x.name, "s", (w.with[x.name]-w.without[x.name])/float64(w.delivered))
		}
	}
	return nil
}

// watching has the parameters and results of apiDeliveries.
type watching struct {
	name  string
	paths []string
	keys  []string // of the pods that change
	each  int      // watches of a path
	rate  Rate
	f     *figures

	delivered     int
	memory        float64            // of a watch
	with, without map[string]float64 // CPU of each server, with the watches and without them
}

// apiDeliveries opens watches at x, and changes pods. Meanwhile y works without the watches.
func (d *Driver) apiDeliveries(ctx context.Context, s *server, x, y *apiSide, w *watching) (err error) {
	_, marks, err := s.change(ctx, 0)
	if err != nil {
		return err
	}
	before, err := x.anon()
	if err != nil {
		return err
	}
	all := &arrivals{last: map[int64]time.Time{}}
	stop, err := x.open(ctx, w.paths, w.each, marks[0].RV, all)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	select {
	case <-time.After(d.plan.Settle):
	case <-ctx.Done():
	}
	after, err := x.anon()
	if err != nil {
		return err
	}
	w.memory = float64(after-before) / float64(w.each*len(w.paths))
	if x.name == Server || y.name == Server {
		if err := s.collectGarbage(ctx); err != nil {
			return err
		}
	}
	w.with[x.name], err = x.cpu(func() (err error) {
		w.without[y.name], err = y.cpu(func() error {
			began := time.Now()
			n, err := s.changeAt(ctx, w.keys, w.rate.PerSecond, w.rate.Duration, s.touchDirect)
			w.f.add(w.name+Changes, EachServer, "", float64(n)/time.Since(began).Seconds())
			w.delivered = n * w.each
			return errors.Join(err, all.await(ctx, w.delivered))
		})
		return err
	})
	if err != nil {
		return err
	}
	var late []float64
	for stamp, at := range all.last {
		late = append(late, at.Sub(time.Unix(0, stamp)).Seconds())
	}
	w.f.add(w.name+": to the last one, median", x.name, "s", measure.Percentile(late, 50))
	w.f.add(w.name+": to the last one, p99", x.name, "s", measure.Percentile(late, 99))
	return nil
}

// open opens watches of each path. The returned function ends them, and reports why one ended before.
func (x *apiSide) open(ctx context.Context, paths []string, each int, rv string, all *arrivals) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var reading errgroup.Group
	stop = func() error {
		cancel()
		return reading.Wait()
	}
	var opening errgroup.Group
	opening.SetLimit(changers)
	for _, path := range paths {
		for range each {
			opening.Go(func() error {
				answer, err := x.get(ctx, path+"?watch=1&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion="+rv, "application/json")
				if err != nil {
					return err
				}
				reading.Go(func() error {
					defer answer.Body.Close()
					err := all.read(bufio.NewReaderSize(answer.Body, 32<<10))
					if ctx.Err() != nil {
						return nil
					}
					return fmt.Errorf("watch of %s ended: %w", path, err)
				})
				return nil
			})
		}
	}
	if err := opening.Wait(); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// read notes the events of a watch until it ends.
func (a *arrivals) read(r *bufio.Reader) error {
	mark := []byte(`"` + peer.Stamp + `":"`)
	var line []byte
	for {
		line = line[:0]
		for {
			part, err := r.ReadSlice('\n')
			line = append(line, part...)
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return err
			}
		}
		now := time.Now()
		_, rest, ok := bytes.Cut(line, mark)
		if !ok {
			continue
		}
		digits, _, _ := bytes.Cut(rest, []byte(`"`))
		if stamp, err := strconv.ParseInt(string(digits), 10, 64); err == nil {
			a.add(stamp, now)
		}
	}
}

// await waits until n events have arrived.
func (a *arrivals) await(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		a.mu.Lock()
		count := a.count
		a.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d events have arrived: %w", count, n, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// apiIdle measures agents that no client asks: a first sync, and changes at a rate.
func (d *Driver) apiIdle(ctx context.Context, s *server, n int, rate Rate, f *figures) error {
	peers := []string{AgentNoAPI, AgentAPI}
	if d.binaries.before != "" {
		peers = append(peers, AgentBefore)
	}
	for i, r := range rounds("", n, peers) {
		for k, name := range r.Peers {
			l := launch{name: Agent, dir: filepath.Join(d.scratch, fmt.Sprint("idle-", i, "-", k))}
			switch name {
			case AgentAPI:
				var err error
				if l.api, err = freeAddress(); err != nil {
					return err
				}
			case AgentBefore:
				l.binary = d.binaries.before
			}
			p, cost, err := d.apiAgent(ctx, s, l)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			before, err := measure.CPU(p.pid())
			if err == nil {
				_, err = s.changeAt(ctx, s.changing(), rate.PerSecond, rate.Duration, s.touch)
			}
			after, errCPU := measure.CPU(p.pid())
			memory, errMemory := measure.ReadMemory(p.pid())
			if err := errors.Join(err, errCPU, errMemory, p.stop()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			f.add("without clients: CPU of a first sync", name, "s", cost.SettledCPU)
			f.add("without clients: memory after a first sync", name, "B", float64(cost.Anon))
			f.add("without clients: CPU of changes", name, "s", (after - before).Seconds())
			f.add("without clients: memory after changes", name, "B", float64(memory.Anon))
		}
	}
	return nil
}
