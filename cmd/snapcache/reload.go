package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/localapi"
)

// reloadTimeout is how long an agent may take. It asks the server for new resources, and
// lets the collections that change store what is on its way.
const reloadTimeout = 90 * time.Second

func reloadCommand() *cli.Command {
	return &cli.Command{
		Name:      "reload",
		Usage:     "have the running agent read its configuration anew",
		UsageText: "snapcache reload [--config FILE] [--socket PATH]",
		Description: `Has the running agent read the configuration file anew that it was started with, and
waits until that is in force. What did not change goes on as it was: it is not listed
again, its watch goes on, and so do its readers.

   snapcache reload --config agent.yaml     --config says where the agent's socket is
   systemctl reload snapcache               the same

Resources, indexes, selectors, transforms, intervals, history, snapshots, health and the
log's level can change. kubeconfig, encryption, the socket, metrics, the log's format,
and the store's type, path and maxSize want a restart.

A configuration that is wrong, or wants a restart, is refused as a whole, and the one
before stays in force. Exits with 2 then.`,
		Flags: []cli.Flag{
			configFileFlag(),
			&cli.StringFlag{Name: socketFlag, Usage: "ask the agent on this `PATH` and no other", TakesFile: true},
		},
		Action: reload,
	}
}

func reload(c *cli.Context) error {
	if err := atMost(c, 0); err != nil {
		return err
	}
	socket := c.String(socketFlag)
	if socket == "" {
		cfg, err := loadConfig(c)
		if err != nil {
			return fmt.Errorf("%w (nothing was reloaded; where the agent's socket is can be said with --socket)", err)
		}
		socket = cfg.LocalAPI.Socket
	}
	ctx, cancel := context.WithTimeout(c.Context, reloadTimeout)
	defer cancel()
	changes, err := localapi.NewClient(socket).Reload(ctx)
	if errors.Is(err, localapi.ErrRefused) {
		return withCode(exitUsage, err)
	}
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		changes = []string{"nothing changed"}
	}
	for _, change := range changes {
		if err := writeStrings(c.App.Writer, change, "\n"); err != nil {
			return err
		}
	}
	return nil
}
