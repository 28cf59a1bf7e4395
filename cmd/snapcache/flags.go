package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/config"
)

// Names of options that more than one place needs.
const (
	configFlag    = "config"
	socketFlag    = "socket"
	dbFlag        = "db"
	outputFlag    = "output"
	indexFlag     = "index"
	valueFlag     = "value"
	namespaceFlag = "namespace"
	fromFlag      = "from"
	dirFlag       = "dir"
	keyFlag       = "encryption-key-file"
)

func configFileFlag() cli.Flag {
	return &cli.StringFlag{
		Name: configFlag, Usage: "the agent's configuration `FILE`; without one the defaults count", EnvVars: []string{"SNAPCACHE_CONFIG"},
		TakesFile: true,
	}
}

// lookupFlags say where the commands that read find the cache.
func lookupFlags() []cli.Flag {
	return []cli.Flag{
		configFileFlag(),
		&cli.StringFlag{Name: socketFlag, Usage: "ask the agent on this `PATH` and no other", TakesFile: true},
		&cli.StringFlag{Name: dbFlag, Usage: "read this database `FILE` and no other", TakesFile: true},
		encryptionFlag(),
	}
}

// readFlags are lookupFlags with a snapshot in the place of the cache.
func readFlags() []cli.Flag {
	return append(lookupFlags(), fromSnapshotFlag())
}

func fromSnapshotFlag() cli.Flag {
	return &cli.StringFlag{Name: fromFlag, Usage: "read this `SNAPSHOT`, a name in the directory of snapshots or a file", TakesFile: true}
}

// outputFormats are the values of -o by command, for the completion too; the
// first is the default.
var outputFormats = map[string][]string{
	"changes": {"table", "json"},
	"check":   {"text", "json"},
	"dump":    {"yaml", "json", "ndjson", "name"},
	"inspect": {"table", "json"},
	"list":    {"table", "json"},
	"rbac":    {"yaml", "json"},
	"status":  {"table", "json"},
	"verify":  {"table", "json"},
	"version": {"text", "json"},
}

// newOutputFlag is -o of a command. Only what it knows gets through.
func newOutputFlag(command string) cli.Flag {
	formats := outputFormats[command]
	return &cli.StringFlag{
		Name: outputFlag, Aliases: []string{"o"}, Value: formats[0], Usage: "`FORMAT`: " + strings.Join(formats, ", "),
		Action: func(_ *cli.Context, v string) error {
			if slices.Contains(formats, v) {
				return nil
			}
			return usagef("%q is not an output format of %s: choose one of %s", v, command, strings.Join(formats, ", "))
		},
	}
}

// loadConfig returns the configuration that --config names, or the default one.
func loadConfig(c *cli.Context) (*config.AgentConfiguration, error) {
	if path := c.String(configFlag); path != "" {
		return config.Load(path)
	}
	return config.Default(), nil
}

// validConfig is loadConfig, checked as an agent checks it.
func validConfig(c *cli.Context) (*config.AgentConfiguration, error) {
	cfg, err := loadConfig(c)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	return cfg, nil
}
