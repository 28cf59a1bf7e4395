package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"github.com/urfave/cli/v2"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/jsonpath"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/kubectl"
	"github.com/snapcache/snapcache/cmd/snapcache/internal/yamltext"
	"github.com/snapcache/snapcache/localapi"
)

const dumpDescription = `Prints cached objects in kubectl's formats, from the running agent or, without
one, from the database file: one RESOURCE, the objects of it that are named, or
everything that is cached, from all namespaces unless -n is given. snapcache get
prints tables.

RESOURCE is named as in kubectl: pods, pod, po, Pod, deployments.apps,
widgets.v1.example.com.

   snapcache dump pods -n shop                    the pods of a namespace, as YAML
   snapcache dump pods till-1 till-2 -n shop      two of them
   snapcache dump deployments.apps -o json        one List, as kubectl get -o json prints it
   snapcache dump pods -l app=till -o name        pod/till-1 ...
   snapcache dump -o ndjson | jq .metadata.name   everything, one object per line
   snapcache dump po -o jsonpath='{.metadata.name}'   applied to each object, one per line
   snapcache dump configmaps | kubectl apply --dry-run=client -f -
   snapcache dump --db copy-of-cache.db           only from this file
   snapcache dump pods --from 20260304T050607.000Z   from a snapshot

Objects lack the fields that the configuration drops (managedFields by default).
Exits with 3 if a requested resource was never synced, and with 4 if stored records
are corrupt; the others are printed.`

func dumpCommand() *cli.Command {
	return &cli.Command{
		Name:        "dump",
		Usage:       "print cached objects",
		UsageText:   "snapcache dump [RESOURCE [NAME...]] [-n NAMESPACE | -A] [-l SELECTOR] [-o yaml|json|ndjson|name|jsonpath=TEMPLATE]",
		Description: dumpDescription,
		Flags: append([]cli.Flag{
			objectNamespaceFlag(),
			allNamespacesFlag(),
			selectorFlag(),
			newOutputFlag("dump"),
		}, readFlags()...),
		Action: dump,
	}
}

func dump(c *cli.Context) error {
	resource, names := c.Args().First(), c.Args().Tail()
	query := localapi.ObjectQuery{Namespace: namespaceOf(c), LabelSelector: c.String("selector"), Names: names}
	if _, err := labels.Parse(query.LabelSelector); err != nil {
		return usagef("label selector %q: %w", query.LabelSelector, err)
	}
	printer, err := newPrinter(c.String(outputFlag), c.App.Writer)
	if err != nil {
		return err
	}
	src, status, done, err := openCache(c.Context, c)
	if err != nil {
		return err
	}
	defer done()
	readable, missing, err := readableCollections(status, resource, query.Namespace)
	if err != nil {
		return err
	}
	absent := sets.New(names...)
	err = src.Objects(c.Context, ids(readable), query, func(raw []byte) error {
		if len(names) > 0 {
			absent.Delete(gjson.GetBytes(raw, "metadata.name").Str)
		}
		return printer.Add(raw)
	})
	damage, ok := errors.AsType[*localapi.CorruptRecordsError](err)
	if err != nil && !ok {
		return err // the output stays without its end, so that no reader takes it for complete
	}
	if err := printer.End(); err != nil {
		return err
	}
	return errors.Join(corrupt(damage), notSynced(missing), notFound(resource, sets.List(absent)))
}

func notFound(resource string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("not found: %s: %s", resource, strings.Join(names, ", "))
}

func ids(collections []localapi.Collection) []string {
	ids := make([]string, len(collections))
	for i, c := range collections {
		ids[i] = c.ID
	}
	return ids
}

// readableCollections returns the collections to read, and the ones that can't be read yet. If one of the
// latter was requested by name, that is an error: part of a resource would look complete.
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

func newPrinter(output string, w io.Writer) (*kubectl.TextList, error) {
	format, template, _ := strings.Cut(output, "=")
	switch format {
	case "json":
		return kubectl.JSONList(w, writeItem), nil
	case "ndjson":
		return &kubectl.TextList{W: w, Encode: writeLine}, nil
	case "name":
		return &kubectl.TextList{W: w, Encode: kubectl.WriteName}, nil
	case "jsonpath":
		encode, err := writeJSONPath(template)
		return &kubectl.TextList{W: w, Encode: encode}, err
	default:
		return &kubectl.TextList{W: w, Encode: yamltext.Write, Between: "---\n"}, nil
	}
}

// indented makes jsontext.AppendFormat format like json.Indent, in half the time.
var indented = []jsontext.Options{
	jsontext.WithIndentPrefix("        "), jsontext.WithIndent("    "),
	jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true),
}

func writeItem(b *bytes.Buffer, raw []byte) error {
	b.WriteString("\n        ")
	text, err := jsontext.AppendFormat(b.AvailableBuffer(), raw, indented...)
	b.Write(text)
	return err
}

func writeLine(b *bytes.Buffer, raw []byte) error {
	defer b.WriteByte('\n')
	if bytes.IndexByte(raw, '\r') >= 0 || bytes.IndexByte(raw, '\n') >= 0 { // faster than ContainsAny
		return json.Compact(b, raw)
	}
	b.Write(raw)
	return nil
}

func writeJSONPath(template string) (func(*bytes.Buffer, []byte) error, error) {
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, usagef("jsonpath %s: %w", template, err)
	}
	if strings.Contains(template, "{.items") || strings.Contains(template, "range .items") {
		return nil, usagef("jsonpath %s: dump applies it to each object: leave out .items, or use snapcache get, which applies it to the list", template)
	}
	return func(b *bytes.Buffer, raw []byte) error {
		var o map[string]any
		if err := utiljson.Unmarshal(raw, &o); err != nil {
			return err
		}
		err := path.Execute(b, o)
		b.WriteByte('\n')
		return err
	}, nil
}
