package kubectl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options are the options of kubectl get, with its names.
type Options struct {
	Namespace     string // empty for "default"
	AllNamespaces bool
	LabelSelector string
	FieldSelector string
	SortBy        string // a JSONPath expression

	Output            string // empty for a table
	NoHeaders         bool
	ShowLabels        bool
	ShowKind          bool
	ShowManagedFields bool
	LabelColumns      []string
	IgnoreNotFound    bool

	Watch             bool // print, then watch
	WatchOnly         bool
	OutputWatchEvents bool
}

// Formats are the values of option -o. Those that end in "=" need a template after it.
func Formats() []string {
	return []string{"wide", "json", "yaml", "kyaml", "name", columnsFormat + "=", "jsonpath=", "jsonpath-as-json=", "jsonpath-file=", "go-template=", "go-template-file="}
}

const columnsFormat = "custom-columns"

// isTable reports whether the server prints.
func (o Options) isTable() bool { return o.Output == "" || o.Output == "wide" }

// namespace returns the namespace of requests, empty for all.
func (o Options) namespace() string {
	if o.AllNamespaces {
		return ""
	}
	return cmp.Or(o.Namespace, metav1.NamespaceDefault)
}

func (o Options) validate() error {
	format, _, hasTemplate := strings.Cut(o.Output, "=")
	if hasTemplate {
		format += "="
	}
	switch {
	case o.Output != "" && slices.Contains(Formats(), format+"="):
		return fmt.Errorf("output format %q needs a template: -o %s=TEMPLATE", format, format)
	case o.Output != "" && !slices.Contains(Formats(), format):
		return fmt.Errorf("unable to match a printer suitable for the output format %q, allowed formats are: %s", o.Output, strings.Join(Formats(), ","))
	case o.ShowLabels && !o.isTable():
		return fmt.Errorf("--show-labels option cannot be used with %s printer", o.Output)
	case len(o.LabelColumns) > 0 && format == columnsFormat+"=":
		return fmt.Errorf("--label-columns option cannot be used with %s printer", o.Output)
	case o.OutputWatchEvents && !o.Watch && !o.WatchOnly:
		return fmt.Errorf("--output-watch-events option can only be used with --watch or --watch-only")
	}
	return nil
}
