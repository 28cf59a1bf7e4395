package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/bench/result"
)

// begin starts a peer.
func (d *Driver) begin(l launch) (subject, error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("start %s: %w", l.name, err)
	}
	if l.name == Agent {
		return startAgent(cmp.Or(l.binary, d.binaries.agent), l)
	}
	return startChild(d.binaries.peer, l)
}

// measured starts a peer, waits until it is caught up and settled, and returns it running, with the
// cost. Its content is compared with the server's.
func (d *Driver) measured(ctx context.Context, s *server, l launch) (_ subject, c result.Cost, err error) {
	server, err := s.cpu()
	if err != nil {
		return nil, c, err
	}
	began := time.Now()
	p, c, err := d.started(ctx, s.network, l)
	if err != nil {
		return nil, c, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.kill())
		}
	}()
	used, err := s.cpu()
	if err != nil {
		return nil, c, err
	}
	c.ServerCPU = used - server - s.idle*time.Since(began).Seconds()
	want := s.contents()
	if l.nodes > 0 { // a fleet caches only some of the resources
		want = map[string]peer.Content{}
		for _, r := range l.resources {
			want[r.Name] = s.contents()[r.Name]
		}
	}
	return p, c, check(ctx, p, want)
}

// started is measured, without the server's part.
func (d *Driver) started(ctx context.Context, network *measure.Network, l launch) (_ subject, c result.Cost, err error) {
	traffic, err := network.Traffic()
	if err != nil {
		return nil, c, err
	}
	p, err := d.begin(l)
	if err != nil {
		return nil, c, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.kill())
		}
	}()
	peak := watchPeak(p.pid())
	defer func() { c.PeakOwn = peak() }()
	if err := d.awaitCaughtUp(ctx, p, l, &c); err != nil {
		return nil, c, err
	}
	select {
	case <-time.After(d.plan.Settle):
	case <-ctx.Done():
		return nil, c, ctx.Err()
	}
	if err := d.settled(p, l, &c); err != nil {
		return nil, c, err
	}
	after, err := network.Traffic()
	c.Traffic = after.Since(traffic)
	return p, c, err
}

// watchPeak follows the memory of a process. The function that it returns ends that, and returns the highest
// [measure.Memory.Own].
func watchPeak(pid int) (end func() int64) {
	const look = 10 * time.Millisecond
	stop, peak := make(chan struct{}), make(chan int64)
	go func() {
		var highest int64
		for {
			if m, err := measure.ReadMemory(pid); err == nil { // it may have ended
				highest = max(highest, m.Own())
			}
			select {
			case <-time.After(look):
			case <-stop:
				peak <- highest
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-peak
	}
}

func (d *Driver) awaitCaughtUp(ctx context.Context, p subject, l launch, c *result.Cost) error {
	at, err := p.await(ctx, peer.Read)
	if err != nil {
		return err
	}
	c.ReadSeconds = at.Seconds()
	if at, err = p.await(ctx, peer.CaughtUp); err != nil {
		return err
	}
	c.CaughtUpSeconds = at.Seconds()
	cpu, err := measure.CPU(p.pid())
	c.CaughtUpCPU = cpu.Seconds()
	child, ok := p.(*child)
	if err != nil || !ok {
		return err
	}
	if l.handler {
		at, err = p.await(ctx, peer.Handled)
		c.HandledSeconds = at.Seconds()
	}
	c.Collector = child.collector.Share(peer.Collector{})
	return err
}

// settled reads the peer's usage after it has settled.
func (d *Driver) settled(p subject, l launch, c *result.Cost) error {
	cpu, err := measure.CPU(p.pid())
	if err != nil {
		return err
	}
	c.SettledCPU = cpu.Seconds()
	if c.Memory, err = measure.ReadMemory(p.pid()); err != nil {
		return err
	}
	if c.WrittenBytes, err = measure.Written(p.pid()); err != nil {
		return err
	}
	c.DiskBytes, err = diskBytes(l.dir)
	return err
}

// check compares a peer's content with the wanted one.
func check(ctx context.Context, p subject, want map[string]peer.Content) error {
	got, err := p.contents(ctx)
	if err != nil {
		return err
	}
	if !maps.Equal(want, got) {
		return p.failed(fmt.Errorf("its objects differ from the server's: %v, not %v", got, want))
	}
	return nil
}

// diskBytes returns the disk space of the databases below a directory, not their length.
func diskBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".db" {
			return err
		}
		n, err := measure.FileBytes(path)
		sum += n
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("size of the database: %w", err)
	}
	return sum, nil
}

// round starts each peer once, after changes that are the same for all of them.
func (d *Driver) round(ctx context.Context, s *server, number int, r Round) ([]result.Turn, error) {
	share := map[string]float64{Restart1: 0.01, Handled: 0.01, Expired: 0.01, Restart10: 0.1}[r.Scenario]
	changed, marks, err := s.change(ctx, share)
	if err != nil {
		return nil, err
	}
	if r.Scenario == Expired {
		if err := s.forget(ctx); err != nil {
			return nil, err
		}
	}
	var turns []result.Turn
	for _, name := range r.Peers {
		l := launch{
			name: name, dir: filepath.Join(d.scratch, name), kubeconfig: s.kubeconfig, resources: s.resources,
			read: s.readMark(), marks: marks, handler: r.Scenario == Handled || r.Scenario == FirstHandled,
		}
		if r.Scenario == First || r.Scenario == FirstHandled {
			if err := os.RemoveAll(l.dir); err != nil {
				return nil, fmt.Errorf("forget what %s has stored: %w", name, err)
			}
		}
		if err := s.collectGarbage(ctx); err != nil {
			return nil, err
		}
		p, cost, err := d.measured(ctx, s, l)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", r.Scenario, name, err)
		}
		if err := p.stop(); err != nil {
			return nil, err
		}
		d.log("%-16s %-18s read %6.3f s, caught up %7.3f s, %9d bytes, cpu %6.2f s, server's %6.2f s, peak %5d MB, own %5d MB, settled %5d MB",
			r.Scenario, name, cost.ReadSeconds, cost.CaughtUpSeconds, cost.Received, cost.CaughtUpCPU, cost.ServerCPU,
			cost.Peak>>20, cost.PeakOwn>>20, cost.Own()>>20)
		turns = append(turns, result.Turn{Scenario: r.Scenario, Peer: name, Round: number, Changed: changed, Cost: cost})
	}
	return turns, nil
}
