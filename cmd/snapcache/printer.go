package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/kubectl"
	"github.com/snapcache/snapcache/cmd/snapcache/internal/yamltext"
)

// newPrinter returns what prints objects in one of dump's formats.
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
