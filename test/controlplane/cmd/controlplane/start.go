package main

import (
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/test/controlplane"
)

func buildCommand() *cli.Command {
	return &cli.Command{
		Name:   "build",
		Usage:  "build etcd, kube-apiserver, kubectl, CoreDNS, Prometheus, kubelet and kube-proxy, unless they are there",
		Before: noArguments,
		Action: func(c *cli.Context) error {
			bin, err := controlplane.Build(c.Context, os.Stderr)
			if err != nil {
				return err
			}
			coredns, err := controlplane.BuildCoreDNS(c.Context, os.Stderr)
			if err != nil {
				return err
			}
			prometheus, err := controlplane.BuildPrometheus(c.Context, os.Stderr)
			if err != nil {
				return err
			}
			kubelet, kubeProxy, err := controlplane.BuildNode(c.Context, os.Stderr)
			if err != nil {
				return err
			}
			for _, path := range []string{bin.Etcd, bin.Etcdutl, bin.APIServer, bin.Kubectl, coredns, prometheus, kubelet, kubeProxy} {
				fmt.Fprintln(c.App.Writer, path)
			}
			return nil
		},
	}
}

func serversCommand() *cli.Command {
	return &cli.Command{
		Name:  "servers",
		Usage: "print the etcd and the kube-apiserver that \"start --installed\" uses",
		Description: "They are looked for in the folder that " + controlplane.AssetsEnv + " names, or on the PATH. " +
			"A missing one, or one whose version does not fit, is built.",
		Before: noArguments,
		Action: func(c *cli.Context) error {
			bin, err := controlplane.Servers(c.Context, os.Stderr)
			if err != nil {
				return err
			}
			fmt.Fprintln(c.App.Writer, bin.Etcd)
			fmt.Fprintln(c.App.Writer, bin.APIServer)
			return nil
		},
	}
}

func startCommand() *cli.Command {
	flags := []cli.Flag{
		dirFlag(),
		&cli.BoolFlag{Name: "installed", Usage: "use an installed etcd and kube-apiserver, see the command servers"},
		&cli.IntFlag{Name: "port", Usage: "port of the apiserver", DefaultText: "a free one"},
		&cli.StringFlag{Name: "from", Usage: "start from what save wrote to this `FOLDER`, where dir has no data yet"},
		&cli.StringSliceFlag{Name: "apiserver-arg", Usage: "more `FLAGS` of the apiserver, \"--name=value\""},
	}
	return &cli.Command{
		Name:  "start",
		Usage: "run a control plane until Ctrl-C, SIGTERM or the command stop",
		Description: "A folder that was used before goes on with its data.\n\n" +
			"Example: controlplane start --dir /tmp/cp --direct-pods 20000",
		Flags:  append(flags, seedFlags()...),
		Before: noArguments,
		Action: func(c *cli.Context) error {
			began := time.Now()
			var servers *controlplane.Binaries
			if c.Bool("installed") {
				found, err := controlplane.Servers(c.Context, os.Stderr)
				if err != nil {
					return err
				}
				servers = &found
			}
			cp, err := controlplane.Start(c.Context, controlplane.Options{
				Binaries:      servers,
				Dir:           c.String("dir"),
				Port:          c.Int("port"),
				EtcdData:      c.String("from"),
				APIServerArgs: c.StringSlice("apiserver-arg"),
				Log:           os.Stderr,
			})
			if err != nil {
				return err
			}
			s, err := newSupervisor(cp)
			if err != nil {
				return withStop(cp, err)
			}
			fmt.Fprintf(c.App.Writer, "ready after %s: %s\n", time.Since(began).Round(100*time.Millisecond), cp.URL())
			for _, user := range []string{controlplane.Admin, controlplane.Reader, controlplane.Stranger} {
				fmt.Fprintf(c.App.Writer, "  %-7s %s\n", user, s.state.Kubeconfigs[user])
			}
			if err := seed(c.Context, cp, seedValues(c)); err != nil {
				return withStop(cp, err)
			}
			fmt.Fprintln(c.App.Writer, "stop it with Ctrl-C, or with: controlplane stop --dir", cp.Dir())
			return s.run(c.Context)
		},
	}
}

func kubeconfigCommand() *cli.Command {
	return &cli.Command{
		Name:  "kubeconfig",
		Usage: "print the path of a user's kubeconfig file",
		Flags: []cli.Flag{dirFlag(), &cli.StringFlag{
			Name: "user", Usage: "admin, reader (all but secrets) or nobody (no rights)", Value: controlplane.Admin}},
		Before: noArguments,
		Action: func(c *cli.Context) error {
			st, err := readState(c.String("dir"))
			if err != nil {
				return err
			}
			path, ok := st.Kubeconfigs[c.String("user")]
			if !ok {
				return fmt.Errorf("%w: %q", controlplane.ErrUnknownUser, c.String("user"))
			}
			fmt.Fprintln(c.App.Writer, path)
			return nil
		},
	}
}
