package kubectl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/liggitt/tabwriter"
	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/yamltext"
	"github.com/snapcache/snapcache/object"
)

// listPrinter prints a List, object by object. Until end is called, the output is not complete.
type listPrinter interface {
	add(raw []byte, of *resource) error
	end() error
}

func newListPrinter(o Options, w io.Writer) (listPrinter, error) {
	p, err := newUnsorted(o, w)
	if err != nil || o.SortBy == "" {
		return p, err
	}
	s, err := newSorter(o.SortBy)
	return &sortedList{to: p, sorter: s}, err
}

func newUnsorted(o Options, w io.Writer) (listPrinter, error) {
	var pruned object.Prune
	if !o.ShowManagedFields {
		pruned = object.NewPrune(object.ManagedFields)
	}
	switch o.Output {
	case "json":
		const head, tail = "{\n    \"apiVersion\": \"v1\",\n    \"items\": [", "],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n"
		return &textList{w: w, encode: writeJSON, head: head, between: ",", tail: "\n    " + tail, none: head + tail, pruned: pruned}, nil
	case "yaml":
		const head, tail = "apiVersion: v1\nitems:", "kind: List\nmetadata:\n  resourceVersion: \"\"\n"
		return &textList{w: w, encode: writeYAML, head: head + "\n", tail: tail, none: head + " []\n" + tail, pruned: pruned}, nil
	case "name":
		return &textList{w: w, encode: writeName}, nil
	}
	p, err := newPrinter(o)
	if err != nil {
		return nil, err
	}
	if c, ok := p.(*customColumns); ok {
		return &columnsList{columns: c, w: printers.GetNewTabWriter(w)}, nil
	}
	return &wholeList{printer: p, w: w}, nil
}

// textList prints one object after the other. none is the whole output if there are no objects.
type textList struct {
	w                         io.Writer
	encode                    func(b *bytes.Buffer, raw []byte, of *resource) error
	head, between, tail, none string
	pruned                    object.Prune

	begun bool
	buf   bytes.Buffer
	raw   []byte // of the pruned object
}

func (p *textList) add(raw []byte, of *resource) error {
	if !p.pruned.None() {
		var err error
		if p.raw, err = p.pruned.Append(p.raw[:0], raw); err != nil {
			return err
		}
		raw = p.raw
	}
	p.buf.Reset()
	if p.begun {
		p.buf.WriteString(p.between)
	} else {
		p.buf.WriteString(p.head)
	}
	p.begun = true
	if err := p.encode(&p.buf, raw, of); err != nil {
		return fmt.Errorf("%.200s: %w", raw, err)
	}
	_, err := p.w.Write(p.buf.Bytes())
	return err
}

func (p *textList) end() error {
	text := p.none
	if p.begun {
		text = p.tail
	}
	_, err := io.WriteString(p.w, text)
	return err
}

// writeJSON writes an object with sorted keys, as an item of a list.
func writeJSON(b *bytes.Buffer, raw []byte, _ *resource) error {
	const indent = "        "
	o, err := decode(raw)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(o.Object, indent, "    ")
	b.WriteString("\n" + indent)
	b.Write(text)
	return err
}

// writeYAML writes an object as an item of a list.
func writeYAML(b *bytes.Buffer, raw []byte, _ *resource) error {
	return yamltext.WriteItem(b, raw)
}

func writeName(b *bytes.Buffer, raw []byte, of *resource) error {
	kind := strings.ToLower(of.kind)
	if of.group != "" {
		kind += "." + of.group
	}
	_, err := fmt.Fprintf(b, "%s/%s\n", kind, gjson.GetBytes(raw, "metadata.name").Str)
	return err
}

// columnsList prints objects as rows of custom columns.
type columnsList struct {
	columns *customColumns
	w       *tabwriter.Writer
}

func (p *columnsList) add(raw []byte, _ *resource) error {
	o, err := decode(raw)
	if err != nil {
		return err
	}
	return p.columns.PrintObj(o, p.w)
}

func (p *columnsList) end() error { return errors.Join(p.columns.head(p.w), p.w.Flush()) }

// wholeList collects the objects for a printer that needs all of them.
type wholeList struct {
	printer printers.ResourcePrinter
	w       io.Writer
	items   []unstructured.Unstructured
}

func (p *wholeList) add(raw []byte, _ *resource) error {
	o, err := decode(raw)
	p.items = append(p.items, *o)
	return err
}

func (p *wholeList) end() error { return p.printer.PrintObj(newList(p.items), p.w) }

// sortedList collects the objects and prints them in order.
type sortedList struct {
	to     listPrinter
	sorter *sorter
	items  []sortedItem
}

type sortedItem struct {
	raw []byte
	of  *resource
}

func (p *sortedList) add(raw []byte, of *resource) error {
	o, err := decode(raw)
	if err != nil {
		return err
	}
	p.items = append(p.items, sortedItem{bytes.Clone(raw), of})
	return p.sorter.add(o.Object)
}

func (p *sortedList) end() error {
	order, err := p.sorter.order()
	if err != nil {
		return err
	}
	for _, i := range inOrder(p.items, order) {
		if err := p.to.add(i.raw, i.of); err != nil {
			return err
		}
	}
	return p.to.end()
}
