package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// seedKinds are the flags of start and seed for the numbers of objects; they are the parameters of
// the supervisor's seed too.
var seedKinds = []struct {
	name, usage string
	field       func(*objects.SeedOptions) *int
}{
	{"pods", "pods, through the apiserver", func(o *objects.SeedOptions) *int { return &o.Pods }},
	{"configmaps", "configmaps", func(o *objects.SeedOptions) *int { return &o.ConfigMaps }},
	{"secrets", "secrets", func(o *objects.SeedOptions) *int { return &o.Secrets }},
	{"services", "services", func(o *objects.SeedOptions) *int { return &o.Services }},
	{"endpointslices", "endpointslices", func(o *objects.SeedOptions) *int { return &o.EndpointSlices }},
	{"deployments", "deployments", func(o *objects.SeedOptions) *int { return &o.Deployments }},
	{"nodes", "nodes", func(o *objects.SeedOptions) *int { return &o.Nodes }},
	{"widgets", "widgets.example.com, a custom resource", func(o *objects.SeedOptions) *int { return &o.Widgets }},
	{"namespaces", "namespaces to spread them over; 0 means ten", func(o *objects.SeedOptions) *int { return &o.Namespaces }},
}

// directPods is the flag of pods that bypass the apiserver.
const directPods = "direct-pods"

func seedFlags() []cli.Flag {
	var flags []cli.Flag
	for _, k := range seedKinds {
		flags = append(flags, &cli.IntFlag{Name: k.name, Usage: "number of " + k.usage})
	}
	return append(flags, &cli.IntFlag{Name: directPods, Usage: "number of pods written straight into etcd: thousands in seconds"})
}

func seedValues(c *cli.Context) url.Values {
	v := url.Values{directPods: {strconv.Itoa(c.Int(directPods))}}
	for _, k := range seedKinds {
		v.Set(k.name, strconv.Itoa(c.Int(k.name)))
	}
	return v
}

func seedCommand() *cli.Command {
	return &cli.Command{
		Name:        "seed",
		Usage:       "create objects",
		Description: "What exists already is left as it is.\n\nExample: controlplane seed --pods 500 --secrets 100",
		Flags:       append([]cli.Flag{dirFlag()}, seedFlags()...),
		Before:      noArguments,
		Action: func(c *cli.Context) error {
			return call(c, "seed", seedValues(c))
		},
	}
}

// seed creates the objects that the values ask for.
func seed(ctx context.Context, cp *controlplane.ControlPlane, values url.Values) error {
	var o objects.SeedOptions
	wanted := false
	for _, k := range seedKinds {
		n, err := number(values, k.name)
		if err != nil {
			return err
		}
		*k.field(&o) = n
		wanted = wanted || n > 0
	}
	if wanted {
		if err := objects.Seed(ctx, cp, o); err != nil {
			return err
		}
	}
	direct, err := number(values, directPods)
	if err != nil || direct == 0 {
		return err
	}
	return objects.SeedPodsDirect(ctx, cp, direct)
}

func number(values url.Values, name string) (int, error) {
	text := values.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s: %q is no number of objects", name, text)
	}
	return n, nil
}
