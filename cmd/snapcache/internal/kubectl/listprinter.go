package kubectl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/liggitt/tabwriter"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/yamltext"
	"github.com/snapcache/snapcache/object"
)

// listPrinter prints a List, object by object. Until End is called, the output is not complete.
type listPrinter interface {
	Add(raw []byte) error
	End() error
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
	pruned := func(encode func(*bytes.Buffer, []byte) error) func(*bytes.Buffer, []byte) error {
		if o.ShowManagedFields {
			return encode
		}
		var buf []byte
		prune := object.NewPrune(object.ManagedFields)
		return func(b *bytes.Buffer, raw []byte) (err error) {
			if buf, err = prune.Append(buf[:0], raw); err != nil {
				return err
			}
			return encode(b, buf)
		}
	}
	switch o.Output {
	case "json":
		return JSONList(w, pruned(writeJSON)), nil
	case "yaml":
		const head, tail = "apiVersion: v1\nitems:", "kind: List\nmetadata:\n  resourceVersion: \"\"\n"
		return &TextList{W: w, Encode: pruned(yamltext.WriteItem), Head: head + "\n", Tail: tail, None: head + " []\n" + tail}, nil
	case "name":
		return &TextList{W: w, Encode: WriteName}, nil
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

// TextList prints objects, given as JSON, one after the other. Until End is called, the output is not
// complete, and in most formats not valid.
type TextList struct {
	W      io.Writer
	Encode func(b *bytes.Buffer, raw []byte) error

	// Head is printed before the first object, Between before each further one, Tail after the
	// last. None is the whole output if there are no objects.
	Head, Between, Tail, None string

	begun bool
	buf   bytes.Buffer
}

// JSONList returns a TextList of one List, whose items encode indents.
func JSONList(w io.Writer, encode func(*bytes.Buffer, []byte) error) *TextList {
	const head, tail = "{\n    \"apiVersion\": \"v1\",\n    \"items\": [", "],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n"
	return &TextList{W: w, Encode: encode, Head: head, Between: ",", Tail: "\n    " + tail, None: head + tail}
}

// Add prints an object.
func (p *TextList) Add(raw []byte) error {
	p.buf.Reset()
	if p.begun {
		p.buf.WriteString(p.Between)
	} else {
		p.buf.WriteString(p.Head)
	}
	p.begun = true
	if err := p.Encode(&p.buf, raw); err != nil {
		return fmt.Errorf("%.200s: %w", raw, err)
	}
	_, err := p.W.Write(p.buf.Bytes())
	return err
}

// End prints the end.
func (p *TextList) End() error {
	text := p.None
	if p.begun {
		text = p.Tail
	}
	_, err := io.WriteString(p.W, text)
	return err
}

// writeJSON writes an object with sorted keys, as an item of a list.
func writeJSON(b *bytes.Buffer, raw []byte) error {
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

// WriteName writes the name of an object with its kind and group, and ends the line.
func WriteName(b *bytes.Buffer, raw []byte) error {
	o, err := object.FromValid(raw)
	if err != nil {
		return err
	}
	kind := strings.ToLower(o.Kind())
	if group, _, ok := strings.Cut(o.APIVersion(), "/"); ok {
		kind += "." + group
	}
	_, err = fmt.Fprintf(b, "%s/%s\n", kind, o.GetName())
	return err
}

type columnsList struct {
	columns *customColumns
	w       *tabwriter.Writer
}

func (p *columnsList) Add(raw []byte) error {
	o, err := decode(raw)
	if err != nil {
		return err
	}
	return p.columns.PrintObj(o, p.w)
}

func (p *columnsList) End() error { return errors.Join(p.columns.head(p.w), p.w.Flush()) }

// wholeList collects the objects for a printer that needs all of them.
type wholeList struct {
	printer printers.ResourcePrinter
	w       io.Writer
	items   []unstructured.Unstructured
}

func (p *wholeList) Add(raw []byte) error {
	o, err := decode(raw)
	p.items = append(p.items, *o)
	return err
}

func (p *wholeList) End() error {
	list := map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": ""}}
	return p.printer.PrintObj(&unstructured.UnstructuredList{Items: p.items, Object: list}, p.w)
}

type sortedList struct {
	to     listPrinter
	sorter *sorter
	items  [][]byte
}

func (p *sortedList) Add(raw []byte) error {
	o, err := decode(raw)
	if err != nil {
		return err
	}
	p.items = append(p.items, bytes.Clone(raw))
	return p.sorter.add(o.Object)
}

func (p *sortedList) End() error {
	order, err := p.sorter.order()
	if err != nil {
		return err
	}
	for _, raw := range inOrder(p.items, order) {
		if err := p.to.Add(raw); err != nil {
			return err
		}
	}
	return p.to.End()
}
