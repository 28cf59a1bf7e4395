package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/kubectl"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/store/bolt"
)

// Names of options that are used in more than one place.
const (
	configFlag    = "config"
	configEnv     = "SNAPCACHE_CONFIG"
	socketFlag    = "socket"
	dbFlag        = "db"
	outputFlag    = "output"
	indexFlag     = "index"
	valueFlag     = "value"
	namespaceFlag = "namespace"
	fromFlag      = "from"
	allNamespaces = "all-namespaces"
	addressFlag   = "address"
	dirFlag       = "dir"
	keyFlag       = "encryption-key-file"
)

func configFileFlag() cli.Flag {
	return &cli.StringFlag{
		Name: configFlag, Usage: "the agent's configuration `FILE`; default: the built-in defaults", EnvVars: []string{configEnv},
		TakesFile: true,
	}
}

func lookupFlags() []cli.Flag {
	return []cli.Flag{
		configFileFlag(),
		socketPathFlag(),
		&cli.StringFlag{Name: dbFlag, Usage: "read only this database `FILE`", TakesFile: true},
		encryptionFlag(),
	}
}

func socketPathFlag() cli.Flag {
	return &cli.StringFlag{Name: socketFlag, Usage: "ask only the agent on this `PATH`", TakesFile: true}
}

func objectNamespaceFlag() cli.Flag {
	return &cli.StringFlag{Name: namespaceFlag, Aliases: []string{"n"}, Usage: "only objects in this `NAMESPACE`; no effect on cluster-scoped resources"}
}

func allNamespacesFlag() cli.Flag {
	return &cli.BoolFlag{Name: allNamespaces, Aliases: []string{"A"}, Usage: "objects in all namespaces, as if there were no -n"}
}

func namespaceOf(c *cli.Context) string {
	if c.Bool(allNamespaces) {
		return ""
	}
	return c.String(namespaceFlag)
}

func selectorFlag() cli.Flag {
	return &cli.StringFlag{Name: "selector", Aliases: []string{"l"}, Usage: "only objects whose labels match `SELECTOR`, as in kubectl"}
}

func readFlags() []cli.Flag {
	return append(lookupFlags(), fromSnapshotFlag())
}

func fromSnapshotFlag() cli.Flag {
	return &cli.StringFlag{Name: fromFlag, Usage: "read this `SNAPSHOT`: a name in the snapshot directory, or a file", TakesFile: true}
}

// outputFormats are the values of -o by command, also for the completion. The first is the default.
var outputFormats = map[string][]string{
	"changes": {"table", "json"},
	"check":   {"text", "json"},
	"dump":    {"yaml", "json", "ndjson", "name", "jsonpath="},
	"get":     kubectl.Formats(),
	"inspect": {"table", "json"},
	"list":    {"table", "json"},
	"rbac":    {"yaml", "json"},
	"status":  {"table", "json"},
	"verify":  {"table", "json"},
	"version": {"text", "json"},
}

// newOutputFlag returns option -o of a command. It refuses unknown formats.
func newOutputFlag(command string) cli.Flag {
	formats := outputFormats[command]
	return &cli.StringFlag{
		Name: outputFlag, Aliases: []string{"o"}, Value: formats[0], Usage: "`FORMAT`: " + strings.Join(formats, ", "),
		Action: func(_ *cli.Context, v string) error {
			format, template, hasTemplate := strings.Cut(v, "=")
			if slices.Contains(formats, v) && !strings.HasSuffix(v, "=") || hasTemplate && template != "" && slices.Contains(formats, format+"=") {
				return nil
			}
			return usagef("%q is not an output format of %s: choose one of %s", v, command, strings.Join(formats, ", "))
		},
	}
}

func loadConfig(c *cli.Context) (*config.AgentConfiguration, error) {
	if path := c.String(configFlag); path != "" {
		return config.Load(path)
	}
	return config.Default(), nil
}

// validConfig returns an agent's configuration: the file of --config with the options of run applied.
func validConfig(c *cli.Context) (*config.AgentConfiguration, error) {
	cfg, err := loadConfig(c)
	if err != nil {
		return nil, err
	}
	cfg.Kubeconfig = cmp.Or(c.String("kubeconfig"), cfg.Kubeconfig)
	cfg.Store.Type = cmp.Or(config.StoreType(c.String("store")), cfg.Store.Type)
	cfg.KubernetesAPI.Address = cmp.Or(c.String("kubernetes-api-address"), cfg.KubernetesAPI.Address)
	if err := cfg.Validate(); err != nil {
		return nil, withCode(exitUsage, err)
	}
	return cfg, nil
}

func encryptionFlag() cli.Flag {
	return &cli.StringFlag{
		Name: keyFlag, Usage: "read the encryption key from this `FILE`; default: the files in the configuration", TakesFile: true,
	}
}

// readKeys reads the keys that open a database or a snapshot. A query to an agent needs none.
func readKeys(c *cli.Context) (bolt.Keyring, error) {
	cfg, err := loadConfig(c)
	if err != nil {
		return bolt.Keyring{}, err
	}
	path := cfg.Encryption.KeyFile
	if c.String(keyFlag) != "" {
		path = c.String(keyFlag)
	}
	keys, err := bolt.ReadKeyring(path, cfg.Encryption.OldKeyFiles)
	if err != nil {
		return keys, withCode(exitUsage, err)
	}
	return keys, nil
}
