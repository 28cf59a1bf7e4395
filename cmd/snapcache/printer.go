package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/yamltext"
	"github.com/snapcache/snapcache/object"
)

// printer prints objects, given as JSON, one by one. Until end is called, the output is not
// complete, and in most formats not valid.
type printer struct {
	w      io.Writer
	encode func(b *bytes.Buffer, raw []byte) error

	// head is printed before the first object, between before each further one, tail after the
	// last. none is the whole output if there are no objects.
	head, between, tail, none string

	buf   bytes.Buffer
	begun bool
}

func newPrinter(output string, w io.Writer) (*printer, error) {
	format, template, _ := strings.Cut(output, "=")
	switch format {
	case "json": // one List, as kubectl get -o json prints it
		const head, tail = "{\n    \"apiVersion\": \"v1\",\n    \"items\": [", "],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n"
		return &printer{w: w, encode: writeItem, head: head, between: ",", tail: "\n    " + tail, none: head + tail}, nil
	case "ndjson":
		return &printer{w: w, encode: writeLine}, nil
	case "name":
		return &printer{w: w, encode: writeName}, nil
	case "jsonpath":
		encode, err := writeJSONPath(template)
		return &printer{w: w, encode: encode}, err
	default:
		return &printer{w: w, encode: yamltext.Write, between: "---\n"}, nil
	}
}

func (p *printer) object(raw []byte) error {
	p.buf.Reset()
	if p.begun {
		p.buf.WriteString(p.between)
	} else {
		p.buf.WriteString(p.head)
	}
	p.begun = true
	if err := p.encode(&p.buf, raw); err != nil {
		return fmt.Errorf("%.200s: %w", raw, err)
	}
	_, err := p.w.Write(p.buf.Bytes())
	return err
}

func (p *printer) end() error {
	if p.begun {
		return writeStrings(p.w, p.tail)
	}
	return writeStrings(p.w, p.none)
}

func writeItem(b *bytes.Buffer, raw []byte) error {
	b.WriteString("\n        ")
	return json.Indent(b, raw, "        ", "    ")
}

func writeLine(b *bytes.Buffer, raw []byte) error {
	defer b.WriteByte('\n')
	if bytes.IndexByte(raw, '\r') >= 0 || bytes.IndexByte(raw, '\n') >= 0 { // faster than ContainsAny
		return json.Compact(b, raw)
	}
	b.Write(raw)
	return nil
}

// writeJSONPath returns the encoder that applies a JSONPath template to each object.
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

// writeName writes the name as kubectl get -o name does.
func writeName(b *bytes.Buffer, raw []byte) error {
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
