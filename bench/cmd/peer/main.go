// Command peer is one cache of one kind, which the benchmarks measure from outside. Package peer
// describes its input and output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/snapcache/snapcache/bench/peer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// lookEvery is the interval of checks for a mark.
const lookEvery = time.Millisecond

// settings are the values of the flags.
type settings struct {
	name      string
	config    *rest.Config
	state     string // directory
	resources []peer.Resource
	handler   bool
	durable   bool
	read      []peer.Mark
	caughtUp  []peer.Mark
	listing   bool // a namespace each second

	node int // number of the node in a fleet

	// Of a fleet. Each node has its own token, if there are any, and hubs share the nodes.
	nodes      int
	hubs       []*rest.Config
	tokens     []string
	checkpoint *checkpoint // of spokes; nil for none
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	klog.SetOutput(os.Stderr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if start, ok := fleets[s.name]; ok {
		return runFleet(ctx, s, start)
	}
	var d *delays
	if s.handler {
		d = newDelays(ctx)
	}
	c, err := peers[s.name](ctx, s, d)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := tellMarks(out, s, c); err != nil {
		return err
	}
	if d != nil {
		for !c.handled() {
			time.Sleep(lookEvery)
		}
		if err := out.Encode(event(peer.Handled)); err != nil {
			return err
		}
	}
	if err := obey(c, d, out); err != nil {
		return err
	}
	cancel()
	return c.stop()
}

// tellMarks sends events when all caches have reached the marks.
func tellMarks(out *json.Encoder, s settings, caches ...*cached) error {
	for _, wanted := range []struct {
		event string
		marks []peer.Mark
	}{{peer.Read, s.read}, {peer.CaughtUp, s.caughtUp}} {
		for _, c := range caches {
			for !c.hasAll(wanted.marks, wanted.event == peer.CaughtUp) {
				time.Sleep(lookEvery)
			}
		}
		if err := out.Encode(event(wanted.event)); err != nil {
			return err
		}
	}
	return nil
}

// event returns an event of now.
func event(name string) peer.Event {
	s := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"},
	}
	metrics.Read(s)
	return peer.Event{Event: name, At: time.Now(), Collector: peer.Collector{
		Collector: s[0].Value.Float64(), Process: s[1].Value.Float64() - s[2].Value.Float64(),
	}}
}

// obey executes the driver's commands until the end of its input.
func obey(c *cached, d *delays, out *json.Encoder) error {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		e := event(in.Text())
		switch e.Event {
		case peer.Contents:
			e.Contents = map[string]peer.Content{}
			for name, versions := range c.versions() {
				e.Contents[name] = peer.ContentOf(versions)
			}
			if c.lists != nil {
				e.Lists = c.lists()
			}
		case peer.Delays:
			e.Handled, e.Durable = d.take()
		case peer.Reset:
			d.reset()
		default:
			return fmt.Errorf("unknown command %q", e.Event)
		}
		if err := out.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

func parse(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("peer NAME", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "the `file` with the connection")
	flags.StringVar(&s.state, "state", "", "the `directory` for durable data")
	flags.BoolVar(&s.handler, "handler", false, "register an event handler with each informer")
	flags.BoolVar(&s.durable, "durable", false, "with a handler, look every 10 ms whether changes have become durable")
	flags.IntVar(&s.nodes, "nodes", 1, "number of nodes in a fleet")
	tokens := flags.String("tokens", "", "the `file` with a token for each node of a fleet, one in a line")
	each := func(name, usage string, to func(string) error) { flags.Func(name, usage+"; may be repeated", to) }
	each("hub", "the `kubeconfig` of a hub that nodes of a fleet use", func(path string) error {
		c, err := clientcmd.BuildConfigFromFlags("", path)
		s.hubs = append(s.hubs, c)
		return err
	})
	each("resource", "a `resource` to cache", func(v string) error {
		r, err := peer.ResourceOf(v)
		s.resources = append(s.resources, r)
		return err
	})
	for name, to := range map[string]*[]peer.Mark{"read": &s.read, "caught-up": &s.caughtUp} {
		each(name, "the `mark` that proves it", func(v string) error {
			m, err := peer.ParseMark(v)
			*to = append(*to, m)
			return err
		})
	}
	var known []string
	for name := range peers {
		known = append(known, name)
	}
	for name := range fleets {
		known = append(known, name)
	}
	slices.Sort(known)
	if len(args) == 0 || !slices.Contains(known, args[0]) {
		return s, fmt.Errorf("the name of a peer is missing, one of %s", strings.Join(known, ", "))
	}
	s.name = args[0]
	if err := flags.Parse(args[1:]); err != nil {
		return s, err
	}
	var err error
	if s.config, err = clientcmd.BuildConfigFromFlags("", *kubeconfig); err != nil {
		return s, err
	}
	for _, c := range append(s.hubs, s.config) {
		c.QPS = -1 // client-go's rate limit would delay the start of a cache
		c.UserAgent = "bench-" + s.name
	}
	if *tokens == "" {
		return s, nil
	}
	b, err := os.ReadFile(*tokens)
	s.tokens = strings.Fields(string(b))
	if err == nil && len(s.tokens) < s.nodes {
		err = fmt.Errorf("%s has %d tokens for %d nodes", *tokens, len(s.tokens), s.nodes)
	}
	return s, err
}
