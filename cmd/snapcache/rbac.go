package main

import (
	"strings"

	"github.com/urfave/cli/v2"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/rbac"
)

func rbacCommand() *cli.Command {
	return &cli.Command{
		Name:      "rbac",
		Usage:     "print the permissions that an agent needs on the server",
		UsageText: "snapcache config rbac [--config FILE] [--name NAME] [--namespace NAMESPACE] [-o yaml|json]",
		Description: `Prints a service account with the roles and bindings that an agent with this
configuration needs, and no more: list and watch on the cached resources, get on those
without a selector, and get by name on the namespace kube-system and on the
definitions of custom resources.

   snapcache config rbac --config agent.yaml | kubectl apply -f -
   snapcache config rbac --config agent.yaml --name edge --namespace system -o json

A resource that is cached in some namespaces gets a role in each; they have to exist.`,
		Flags: []cli.Flag{
			configFileFlag(),
			&cli.StringFlag{Name: "name", Value: "snapcache", Usage: "`NAME` of the service account, the roles and the bindings", Action: validName("name")},
			&cli.StringFlag{Name: namespaceFlag, Aliases: []string{"n"}, Value: "snapcache", Usage: "`NAMESPACE` of the service account", Action: validName(namespaceFlag)},
			newOutputFlag("rbac"),
		},
		Action: atMost(0, printRBAC),
	}
}

// validName returns a check of a flag's value: it must be a DNS label, a valid name for a namespace
// and for the other objects of this command.
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
