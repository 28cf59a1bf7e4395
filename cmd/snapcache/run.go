package main

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/snapcache/snapcache/agent"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/logging"
	"github.com/snapcache/snapcache/systemd"
)

// gcPercent trades CPU for memory, which an edge node shares with its workload. $GOGC overrides it.
const gcPercent = 50

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run the agent",
		UsageText: "snapcache run [--config FILE] [--kubeconfig FILE] [--store bolt|memory] [--kubernetes-api-address ADDRESS]",
		Description: `Lists and watches the configured resources and stores them on disk, until it is
stopped. It answers from disk at once, before it has contacted any server.

   snapcache run                                  with the defaults, and kubectl's kubeconfig
   snapcache run --config agent.yaml
   snapcache run --config agent.yaml --kubeconfig edge.kubeconfig
   snapcache run --store memory                   without a database, to try it out
   snapcache run --config hub.yaml --kubernetes-api-address $POD_IP:6445
                                                  in a pod, whose IP no file knows

SIGINT and SIGTERM stop it cleanly, a second one at once. SIGHUP makes it read the
configuration file again, as snapcache reload does. It logs to standard error, or to
the systemd journal if that is connected to it. Exits with 2 if the configuration is
wrong.`,
		Flags: []cli.Flag{
			configFileFlag(),
			kubeconfigFlag(),
			&cli.StringFlag{Name: "store", Usage: "`TYPE` of the store: bolt or memory; overrides the configuration"},
			&cli.StringFlag{Name: "kubernetes-api-address", Usage: "`ADDRESS` of the Kubernetes API; overrides the configuration"},
		},
		Action: atMost(0, run),
	}
}

func run(c *cli.Context) error {
	if runtime.GOOS == "windows" {
		return usagef("no agent runs on Windows, which has no lock for its files: the commands that read a file or a snapshot work here")
	}
	cfg, err := validConfig(c)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := interruptible(c.Context)
	defer stop()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	opts := agent.Options{
		Version: programVersion(), Level: new(slog.LevelVar), Hangup: hangup,
		Load: func() (*config.AgentConfiguration, error) { return validConfig(c) },
	}
	opts.Level.Set(cfg.Log.Level.Level())
	log := c.App.ErrWriter
	if term.IsTerminal(int(os.Stderr.Fd())) {
		opts.Progress = os.Stderr
		log = lineClearer{log}
	}
	opts.Logger = slog.New(logging.RateLimit(newHandler(cfg.Log.Format, opts.Level, log)))
	klog.SetSlogLogger(opts.Logger)
	return agent.Run(ctx, cfg, opts)
}

// newHandler logs to the journal if standard error is connected to it, otherwise to w.
func newHandler(format config.LogFormat, level slog.Leveler, w io.Writer) slog.Handler {
	opts := &slog.HandlerOptions{Level: level}
	if format == config.LogJSON {
		return systemd.Journal(level, slog.NewJSONHandler(w, opts))
	}
	return systemd.Journal(level, slog.NewTextHandler(w, opts))
}
