package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

func churnCommand() *cli.Command {
	return &cli.Command{
		Name:        "churn",
		Usage:       "create, update and delete objects at random",
		Description: "It ends with Ctrl-C, --count or --duration, and goes on through an apiserver that is away.\n\nExample: controlplane churn --rate 50 --duration 1m --kind pods --kind widgets",
		Flags: []cli.Flag{
			dirFlag(),
			&cli.Float64Flag{Name: "rate", Usage: "operations per second", Value: 10},
			&cli.IntFlag{Name: "count", Usage: "operations to do", DefaultText: "no end"},
			&cli.DurationFlag{Name: "duration", Usage: "how long", DefaultText: "no end"},
			&cli.Int64Flag{Name: "seed", Usage: "seed of what is done"},
			&cli.IntFlag{Name: "namespaces", Usage: "namespaces to act in, from shop-0000", Value: 4},
			&cli.StringSliceFlag{Name: "kind", Usage: "pods, configmaps or widgets", DefaultText: "all three"},
		},
		Before: noArguments,
		Action: func(c *cli.Context) error {
			config, err := adminConfig(c)
			if err != nil {
				return err
			}
			ctx := c.Context
			if d := c.Duration("duration"); d > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, d)
				defer cancel()
			}
			counts, err := objects.Churn(ctx, config, objects.ChurnOptions{
				Rate:       c.Float64("rate"),
				Count:      c.Int("count"),
				Seed:       c.Int64("seed"),
				Namespaces: c.Int("namespaces"),
				Kinds:      c.StringSlice("kind"),
			})
			fmt.Fprintf(c.App.Writer, "created %d, updated %d, deleted %d, failed %d\n",
				counts.Created, counts.Updated, counts.Deleted, counts.Failed)
			return err
		},
	}
}

func touchCommand() *cli.Command {
	return &cli.Command{
		Name:  "touch",
		Usage: "change one annotation of existing objects and print their keys",
		Flags: []cli.Flag{
			dirFlag(),
			&cli.StringFlag{Name: "resource", Usage: "whose objects", Value: "pods"},
			&cli.IntFlag{Name: "count", Usage: "how many", Value: 1},
		},
		Before: noArguments,
		Action: func(c *cli.Context) error {
			config, err := adminConfig(c)
			if err != nil {
				return err
			}
			keys, err := objects.Touch(c.Context, config, c.String("resource"), c.Int("count"))
			if err != nil {
				return err
			}
			for _, key := range keys {
				fmt.Fprintln(c.App.Writer, key)
			}
			return nil
		},
	}
}

// adminConfig returns the client configuration of the running control plane.
func adminConfig(c *cli.Context) (*rest.Config, error) {
	st, err := readState(c.String("dir"))
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", st.Kubeconfigs[controlplane.Admin])
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}
