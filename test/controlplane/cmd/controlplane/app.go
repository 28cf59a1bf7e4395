package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"
)

const description = `It listens on 127.0.0.1 only. There are no controllers, no scheduler and no
kubelet: objects are what you, "seed" and "churn" make of them.

In one terminal:

   controlplane start --dir /tmp/cp --pods 500 --configmaps 100 --widgets 50

In another:

   export KUBECONFIG=$(controlplane kubeconfig --dir /tmp/cp)
   kubectl get pods -A
   controlplane churn --dir /tmp/cp --rate 50 --duration 1m
   controlplane touch --dir /tmp/cp --resource pods --count 3

What a long outage of the apiserver does to its clients:

   controlplane kill-apiserver --dir /tmp/cp
   controlplane start-apiserver --dir /tmp/cp

What a cluster restored from a backup does:

   controlplane save --dir /tmp/cp --to /tmp/backup
   controlplane restore --dir /tmp/cp --from /tmp/backup`

func newApp() *cli.App {
	return &cli.App{
		Name:            "controlplane",
		Usage:           "a real etcd and kube-apiserver for tests and demonstrations",
		Description:     description,
		HideHelpCommand: true,
		Commands: append([]*cli.Command{
			buildCommand(),
			serversCommand(),
			startCommand(),
			kubeconfigCommand(),
			seedCommand(),
			churnCommand(),
			touchCommand(),
		}, remoteCommands()...),
	}
}

// dirFlag names the folder of the control plane that a command is about.
func dirFlag() cli.Flag {
	return &cli.StringFlag{
		Name:    "dir",
		Usage:   "folder of the control plane",
		EnvVars: []string{"SNAPCACHE_CONTROLPLANE_DIR"},
		Value:   filepath.Join(os.TempDir(), "snapcache-controlplane"),
	}
}

// noArguments refuses arguments that a command would silently ignore.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("%s takes no arguments, got %q", c.Command.Name, c.Args().Slice())
	}
	return nil
}
