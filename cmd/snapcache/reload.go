package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/localapi"
)

// reloadTimeout limits how long a reload may take. The agent asks the server for new resources, and
// waits until changed collections have stored the changes that they received.
const reloadTimeout = 90 * time.Second

func reloadCommand() *cli.Command {
	return &cli.Command{
		Name:      "reload",
		Usage:     "make the running agent read its configuration again",
		UsageText: "snapcache reload [--config FILE] [--socket PATH]",
		Description: `Makes the running agent read its configuration file again, and waits until that is in
force. Unchanged resources are not affected: they are not listed again, and their
watches and readers continue.

   snapcache reload --config agent.yaml     --config contains the path of the agent's socket
   systemctl reload snapcache               the same

Resources, indexes, selectors, transforms, staleness, intervals, history, snapshots,
health and the log level can change. kubeconfig, encryption, the socket, kubernetesAPI,
metrics, the log format, and the store's type, path and maxSize need a restart.

A configuration that is wrong, or needs a restart, is refused as a whole, and the
previous one stays in force. The command then exits with 2.`,
		Flags: []cli.Flag{
			configFileFlag(), socketPathFlag(),
		},
		Action: atMost(0, reload),
	}
}

func reload(c *cli.Context) error {
	socket := c.String(socketFlag)
	if socket == "" {
		cfg, err := loadConfig(c)
		if err != nil {
			return fmt.Errorf("%w (nothing was reloaded; give the agent's socket with --socket)", err)
		}
		socket = socketOf(c.String(configFlag), cfg, serviceSocket(c))
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
	return writeStrings(c.App.Writer, strings.Join(changes, "\n"), "\n")
}
