package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/rbac"
	"github.com/snapcache/snapcache/systemd"
	"github.com/snapcache/snapcache/upstream"
)

// serverTimeout limits how long config check waits for the server in total.
const serverTimeout = 30 * time.Second

func configCommand() *cli.Command {
	return &cli.Command{
		Name:      "config",
		Usage:     "check a configuration file, print what it means, the default one, or the permissions that one needs",
		UsageText: "snapcache config check|show|default|rbac",
		Description: `   snapcache config check agent.yaml
   snapcache config show agent.yaml
   snapcache config default > agent.yaml
   snapcache config rbac agent.yaml | kubectl apply -f -

FILE is the same as --config FILE.`,
		Subcommands: []*cli.Command{
			{
				Name:      "check",
				Usage:     "check a configuration file",
				UsageText: "snapcache config check [--config] FILE [--kubeconfig FILE] [--cluster [-o text|json]]",
				Description: `Checks a configuration file as the agent does, and reports every error with its line
and field. With --kubeconfig it also asks the server whether it has each resource,
whether it grants the user of that kubeconfig all permissions that config rbac prints,
naming the missing ones, and whether each resource can be followed: some aggregated APIs
have lists without a resourceVersion, or no watch.

With --cluster it also measures what the server offers to this configuration, in a
minute and a quarter: its version, its clock and latency, how far back a watch resumes,
whether bookmarks arrive, whether lists are compressed, and what a restart of the agent
costs. It lists every configured resource once, as a first start does, and writes
nothing. Without --kubeconfig it asks the server of the configuration.

   snapcache config check agent.yaml
   snapcache config check agent.yaml --kubeconfig ~/.kube/config
   snapcache config check agent.yaml --cluster
   snapcache config check agent.yaml --cluster -o json | jq .list.bytes

Exits with 2 if the configuration has an error, or a resource that can't be followed,
and with 1 if the server could not be asked, does not grant all permissions or could
not be measured to the end.`,
				Flags:  []cli.Flag{configFileFlag(), kubeconfigFlag(), clusterFlag(), newOutputFlag("check")},
				Action: fromFile(checkConfig),
			},
			showCommand(),
			{
				Name:      "default",
				Usage:     "print the default configuration",
				UsageText: "snapcache config default",
				Description: `Prints all settings with their defaults for this user and environment.

   snapcache config default > agent.yaml`,
				Action: atMost(0, func(c *cli.Context) error { return writeConfig(c, config.Default()) }),
			},
			rbacCommand(),
		},
	}
}

func showCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "print a configuration with all that it leaves out",
		UsageText: "snapcache config show [[--config] FILE]",
		Description: `Prints the configuration that an agent with this file has: its settings, the defaults
for this user and environment, and the resources of its profile.

   snapcache config show agent.yaml`,
		Flags: []cli.Flag{configFileFlag()},
		Action: fromFile(func(c *cli.Context) error {
			cfg, err := validConfig(c)
			if err != nil {
				return err
			}
			return writeConfig(c, cfg)
		}),
	}
}

// fromFile lets the configuration file of a command be its argument.
func fromFile(action cli.ActionFunc) cli.ActionFunc {
	return atMost(1, func(c *cli.Context) error {
		if file := c.Args().First(); file != "" {
			if given := c.String(configFlag); given != "" && given != os.Getenv(configEnv) {
				return usagef("unexpected argument %q: the file is given by --%s", file, configFlag)
			}
			if err := c.Set(configFlag, file); err != nil {
				return err
			}
		}
		return action(c)
	})
}

func writeConfig(c *cli.Context, cfg *config.AgentConfiguration) error {
	b, err := yaml.Marshal(cfg)
	if err != nil {
		return err
	}
	return writeStrings(c.App.Writer, string(b))
}

func kubeconfigFlag() cli.Flag {
	return &cli.StringFlag{Name: "kubeconfig", Usage: "use only this kubeconfig `FILE`", TakesFile: true}
}

func checkConfig(c *cli.Context) error {
	cfg, err := validConfig(c)
	if err != nil {
		return err
	}
	if c.Bool(clusterFlagName) {
		return checkCluster(c, cfg)
	}
	if c.String(outputFlag) != outputFormats["check"][0] {
		return usagef("-o %s is for --%s", c.String(outputFlag), clusterFlagName)
	}
	asked := ""
	if path := c.String("kubeconfig"); path != "" {
		server, err := askServer(c.Context, cfg, path)
		if err != nil {
			return err
		}
		asked = ", all served by " + server + ", which grants all permissions"
	}
	place := string(cfg.Store.Type)
	if cfg.Store.Type == config.StoreBolt {
		place += " at " + cfg.Store.Path
	}
	profile := ""
	if cfg.Profile != "" {
		profile = fmt.Sprintf(" (profile %s, of node %s)", cfg.Profile, cfg.NodeName)
	}
	if service, ok := config.ServiceOf(c.String(configFlag)); ok {
		for _, dir := range notWritable(cfg, service.Unit(), os.DirFS("/")) {
			if err := writeStrings(c.App.ErrWriter, "snapcache: ", systemd.DropIn(service.Unit(), dir), "\n"); err != nil {
				return err
			}
		}
	}
	_, err = fmt.Fprintf(c.App.Writer, "ok: %s%s%s; store %s; socket %s\n",
		plural(int64(len(cfg.Resources)), "resource", "resources"), profile, asked, place, cfg.LocalAPI.Socket)
	return err
}

// notWritable returns the directories of a configuration that a unit may not write to.
func notWritable(cfg *config.AgentConfiguration, unit string, root fs.FS) []string {
	paths := []string{cfg.LocalAPI.Socket, cfg.KubernetesAPI.Socket}
	if cfg.Store.Type == config.StoreBolt {
		paths = append(paths, cfg.Store.Path, filepath.Join(cfg.Snapshots.Dir, "snapshot"))
	}
	var dirs []string
	for _, path := range paths {
		dir := filepath.Dir(path)
		named := slices.ContainsFunc(dirs, func(d string) bool { return dir == d || strings.HasPrefix(dir, d+"/") })
		if path != "" && !named && !systemd.MayWrite(root, unit, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// askServer asks the server for each resource and the permissions on them, and returns the server's
// address. With a fallback context or a seed there are several: each is asked for the resources, and only
// one for the permissions, the fallback if there is one, because the others may be agents, which have none
// of their own.
func askServer(ctx context.Context, cfg *config.AgentConfiguration, kubeconfig string) (string, error) {
	var connections []*rest.Config
	for _, s := range []struct{ field, context string }{
		{"restore.seed names a context, as it has no slash: ", cfg.Restore.Context()}, {}, {"fallbackContext: ", cfg.FallbackContext},
	} {
		if s.context == "" && s.field != "" {
			continue
		}
		connection, err := upstream.LoadConfig(kubeconfig, s.context)
		if err != nil {
			return "", withCode(exitUsage, fmt.Errorf("%s%w", s.field, err))
		}
		connections = append(connections, connection)
	}
	var asked []string
	for i, connection := range connections {
		address, err := askOne(ctx, cfg, connection, i == len(connections)-1)
		if err != nil {
			return "", err
		}
		if !slices.Contains(asked, address) {
			asked = append(asked, address)
		}
	}
	return strings.Join(asked, " and "), nil
}

// askOne asks one server for each resource and, if rights is set, for the permissions on them.
func askOne(ctx context.Context, cfg *config.AgentConfiguration, connection *rest.Config, rights bool) (string, error) {
	cluster, err := upstream.New(connection)
	if err != nil {
		return "", withCode(exitUsage, err)
	}
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	unanswered := func(err error) error {
		return fmt.Errorf("the configuration is valid, but %s could not be asked: %s", cluster.Server(), upstream.Describe(err))
	}
	resources, err := checkResources(ctx, cluster, cfg, unanswered)
	if err != nil || !rights {
		return cluster.Server(), err
	}
	missing, err := missingRights(ctx, cluster, cfg)
	if err != nil {
		return "", unanswered(err)
	}
	if err := missingError(cluster.Server(), missing); err != nil {
		return "", err
	}
	return cluster.Server(), checkFollows(ctx, cluster, cfg, resources, unanswered)
}

// checkFollows asks the server whether each of the configured resources can be followed: some aggregated APIs
// offer lists and watches that are of no use for a cache. If that fails, it returns the error of unanswered.
func checkFollows(
	ctx context.Context, cluster *upstream.Cluster, cfg *config.AgentConfiguration, resources []upstream.Resource, unanswered func(error) error,
) error {
	var wrong []error
	for i, r := range cfg.Resources {
		opts := upstream.SourceOptions{Resource: resources[i], LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector}
		if len(r.Namespaces) > 0 {
			opts.Namespace = r.Namespaces[0]
		}
		err := cluster.Source(opts).Follow(ctx)
		switch upstream.Classify(err) {
		case "":
		case upstream.Gone, upstream.Other:
			wrong = append(wrong, fmt.Errorf("resources[%d].resource: %s can't be cached, as it can't be followed: %s",
				i, r.Resource, upstream.Describe(err)))
		default:
			return unanswered(err)
		}
	}
	if len(wrong) > 0 {
		return withCode(exitUsage, errors.Join(wrong...))
	}
	return nil
}

// checkResources asks the server for each resource, and returns all in the order of the configuration. If that
// fails, it returns the error of unanswered.
func checkResources(
	ctx context.Context, cluster *upstream.Cluster, cfg *config.AgentConfiguration, unanswered func(error) error,
) (resources []upstream.Resource, err error) {
	var wrong []error
	for i, r := range cfg.Resources {
		found, err := cluster.Resolve(ctx, r.Resource.Resource, r.Resource.Version, r.Resource.Group)
		resources = append(resources, found)
		field := fmt.Sprintf("resources[%d]", i)
		switch {
		case errors.As(err, new(*upstream.NoResourceError)):
			wrong = append(wrong, fmt.Errorf("%s.resource: %w", field, err))
		case err != nil:
			return nil, unanswered(err)
		case !found.Namespaced && len(r.Namespaces) > 0:
			wrong = append(wrong, fmt.Errorf("%s.namespaces: %s are cluster-scoped: leave the field out", field, r.Resource))
		}
	}
	if len(wrong) > 0 {
		return nil, withCode(exitUsage, errors.Join(wrong...))
	}
	return resources, nil
}

// missingRights returns the permissions that the server does not grant, each with the missing verbs only.
func missingRights(ctx context.Context, cluster *upstream.Cluster, cfg *config.AgentConfiguration) ([]rbac.Permission, error) {
	var missing []rbac.Permission
	for _, right := range rbac.Of(cfg).Each() {
		lacks := right
		lacks.Verbs = nil
		for _, verb := range right.Verbs {
			allowed, err := cluster.Allowed(ctx, authorizationv1.ResourceAttributes{
				Verb: verb, Group: right.Group, Resource: right.Resource, Name: right.Name, Namespace: right.Namespace,
			})
			if err != nil {
				return nil, err
			}
			if !allowed {
				lacks.Verbs = append(lacks.Verbs, verb)
			}
		}
		if len(lacks.Verbs) > 0 {
			missing = append(missing, lacks)
		}
	}
	return missing, nil
}

func missingError(server string, missing []rbac.Permission) error {
	if len(missing) == 0 {
		return nil
	}
	var errs []error
	for _, right := range missing {
		errs = append(errs, fmt.Errorf("%s does not grant %s", server, describeRight(right)))
	}
	return errors.Join(append(errs, errors.New("the configuration is valid, but rights are missing: snapcache config rbac prints the manifest that grants them"))...)
}

func describeRight(right rbac.Permission) string {
	text := strings.Join(right.Verbs, ", ") + " on " + schema.GroupResource{Group: right.Group, Resource: right.Resource}.String()
	switch {
	case right.Name != "":
		text += " " + right.Name
	case right.Namespace != "":
		text += " in the namespace " + right.Namespace
	default:
		text += " in all of the cluster"
	}
	switch {
	case right.Resource == "namespaces" && right.Name != "":
		text += ": the cluster will be identified by its CA and address"
	case right.Group == "certificates.k8s.io":
		text += ": the signer can't be asked for the serving certificate"
	case right.Name != "":
		text += ": a change of its schema will not be noticed"
	case slices.Equal(right.Verbs, []string{"get"}):
		text += ": objects that are corrupt or differ can't be fetched again"
	default:
		text += ": it can't be cached"
	}
	return text
}

func rbacCommand() *cli.Command {
	return &cli.Command{
		Name:      "rbac",
		Usage:     "print the permissions that an agent needs on the server",
		UsageText: "snapcache config rbac [[--config] FILE] [--name NAME] [--namespace NAMESPACE] [-o yaml|json]",
		Description: `Prints a service account with the roles and bindings that an agent with this
configuration needs, and no more: list and watch on the cached resources, get on those
without a selector, and get by name on the namespace kube-system and on the
definitions of custom resources.

   snapcache config rbac agent.yaml | kubectl apply -f -
   snapcache config rbac agent.yaml --name edge --namespace system -o json

A resource that is cached in some namespaces gets a role in each; they have to exist.`,
		Flags: []cli.Flag{
			configFileFlag(),
			&cli.StringFlag{Name: "name", Value: "snapcache", Usage: "`NAME` of the service account, the roles and the bindings", Action: validName("name")},
			&cli.StringFlag{Name: namespaceFlag, Aliases: []string{"n"}, Value: "snapcache", Usage: "`NAMESPACE` of the service account", Action: validName(namespaceFlag)},
			newOutputFlag("rbac"),
		},
		Action: fromFile(printRBAC),
	}
}

// validName checks that a flag's value is a DNS label: a name for each of the command's objects.
func validName(flag string) func(*cli.Context, string) error {
	return func(_ *cli.Context, v string) error {
		if problems := validation.IsDNS1123Label(v); len(problems) > 0 {
			return usagef("--%s %q: %s", flag, v, strings.Join(problems, "; "))
		}
		return nil
	}
}

func printRBAC(c *cli.Context) error {
	cfg, err := validConfig(c)
	if err != nil {
		return err
	}
	objects := rbac.Of(cfg).Objects(rbac.Account{Name: c.String("name"), Namespace: c.String(namespaceFlag)})
	if c.String(outputFlag) == "json" {
		return writeJSON(c.App.Writer, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	documents := make([]string, len(objects))
	for i, o := range objects {
		b, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		documents[i] = string(b)
	}
	return writeStrings(c.App.Writer, strings.Join(documents, "---\n"))
}
