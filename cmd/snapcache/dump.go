package main

import (
	"errors"

	"github.com/urfave/cli/v2"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/snapcache/snapcache/localapi"
)

const dumpDescription = `Prints cached objects as kubectl understands them, from the running agent or,
without one, from the database file. One RESOURCE, or everything that is cached.

RESOURCE is named as in kubectl: pods, Pod, deployments.apps, widgets.v1.example.com.

   snapcache dump pods -n shop                    the pods of a namespace, as YAML
   snapcache dump deployments.apps -o json        one List, as kubectl get -o json prints it
   snapcache dump pods -l app=till -o name        pod/till-1 ...
   snapcache dump -o ndjson | jq .metadata.name   everything, one object a line
   snapcache dump configmaps | kubectl apply --dry-run=client -f -
   snapcache dump --db copy-of-cache.db           from a file and nothing else
   snapcache dump pods --from 20260304T050607.000Z   from a snapshot

Objects are without what the configuration drops (managedFields by default).
Exits with 3 where something that was asked for was never synced and with 4 where
stored records are damaged; the others are printed.`

func dumpCommand() *cli.Command {
	return &cli.Command{
		Name:        "dump",
		Usage:       "print cached objects",
		UsageText:   "snapcache dump [RESOURCE] [-n NAMESPACE] [-l SELECTOR] [-o yaml|json|ndjson|name]",
		Description: dumpDescription,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: namespaceFlag, Aliases: []string{"n"}, Usage: "only objects of this `NAMESPACE`; without effect on what is in none"},
			&cli.StringFlag{Name: "selector", Aliases: []string{"l"}, Usage: "only objects whose labels match `SELECTOR`, as in kubectl"},
			newOutputFlag("dump"),
		}, readFlags()...),
		Action: dump,
	}
}

func dump(c *cli.Context) error {
	if err := atMost(c, 1); err != nil {
		return err
	}
	resource := c.Args().First()
	query := localapi.ObjectQuery{Namespace: c.String(namespaceFlag), LabelSelector: c.String("selector")}
	if _, err := labels.Parse(query.LabelSelector); err != nil {
		return usagef("label selector %q: %w", query.LabelSelector, err)
	}
	look, err := newLookup(c)
	if err != nil {
		return err
	}
	defer look.close()
	src, status, err := look.open(c.Context)
	if err != nil {
		return err
	}
	readable, missing, err := readableCollections(status, resource, query.Namespace)
	if err != nil {
		return err
	}
	printer := newPrinter(c.String(outputFlag), c.App.Writer)
	var damages []*localapi.DamageError
	for _, collection := range readable {
		err := src.Objects(c.Context, collection.ID, query, printer.object)
		var damage *localapi.DamageError
		switch {
		case errors.As(err, &damage):
			damages = append(damages, damage)
		case err != nil:
			return err // what was printed is not ended, so that nobody takes it for the whole
		}
	}
	if err := printer.end(); err != nil {
		return err
	}
	return errors.Join(damaged(damages), notSynced(missing))
}

// readableCollections returns the collections to read, and those that were not
// asked for by name and can't be read yet. One that was asked for is an error: a
// part of a resource would look like the whole of it.
func readableCollections(status *localapi.Status, resource, namespace string) (readable, missing []localapi.Collection, err error) {
	if len(status.Collections) == 0 {
		return nil, nil, nothingCached()
	}
	selected, err := selectCollections(status.Collections, resource)
	if err != nil {
		return nil, nil, err
	}
	if selected, err = inNamespace(selected, namespace); err != nil {
		return nil, nil, err
	}
	readable, missing = synced(selected)
	if len(missing) > 0 && (resource != "" || len(readable) == 0) {
		return nil, nil, notSynced(missing)
	}
	return readable, missing, nil
}
