package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/snapcache/snapcache/object"
)

// printer prints objects one by one. Without end the output is not complete, and in most formats
// not valid.
type printer interface {
	object(*object.Object) error
	end() error
}

func newPrinter(format string, w io.Writer) printer {
	switch format {
	case "json":
		return &listPrinter{w: w}
	case "ndjson":
		return linePrinter{w}
	case "name":
		return namePrinter{w}
	default:
		return &yamlPrinter{w: w}
	}
}

// listPrinter prints one List, as kubectl get -o json does.
type listPrinter struct {
	w     io.Writer
	buf   bytes.Buffer
	begun bool
}

const (
	listHead = "{\n    \"apiVersion\": \"v1\",\n    \"items\": ["
	listTail = "],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n"
)

func (p *listPrinter) object(o *object.Object) error {
	p.buf.Reset()
	if p.begun {
		p.buf.WriteByte(',')
	} else {
		p.buf.WriteString(listHead)
	}
	p.begun = true
	p.buf.WriteString("\n        ")
	if err := json.Indent(&p.buf, o.JSON(), "        ", "    "); err != nil {
		return fmt.Errorf("%s: %w", o.Key(), err)
	}
	_, err := p.w.Write(p.buf.Bytes())
	return err
}

func (p *listPrinter) end() error {
	tail := listHead + listTail
	if p.begun {
		tail = "\n    " + listTail
	}
	_, err := io.WriteString(p.w, tail)
	return err
}

// linePrinter prints one object per line.
type linePrinter struct{ w io.Writer }

func (p linePrinter) object(o *object.Object) error {
	raw := o.JSON()
	if bytes.ContainsAny(raw, "\r\n") {
		var one bytes.Buffer
		if err := json.Compact(&one, raw); err != nil {
			return fmt.Errorf("%s: %w", o.Key(), err)
		}
		raw = one.Bytes()
	}
	if _, err := p.w.Write(raw); err != nil {
		return err
	}
	_, err := io.WriteString(p.w, "\n")
	return err
}

func (linePrinter) end() error { return nil }

// namePrinter prints names as kubectl get -o name does.
type namePrinter struct{ w io.Writer }

func (p namePrinter) object(o *object.Object) error {
	kind := strings.ToLower(o.Kind())
	if group, _, ok := strings.Cut(o.APIVersion(), "/"); ok {
		kind += "." + group
	}
	_, err := fmt.Fprintf(p.w, "%s/%s\n", kind, o.GetName())
	return err
}

func (namePrinter) end() error { return nil }

// yamlPrinter prints one document per object.
//
// It does what sigs.k8s.io/yaml's JSONToYAML does, but for any JSON. JSONToYAML reads the JSON with
// a YAML parser, which refuses some valid JSON ("\/", escaped surrogate pairs, the characters
// U+007F and U+FFFF, keys of more than 1024 bytes), and writes the key "<<" in a way that reads as
// a merge instruction.
type yamlPrinter struct {
	w     io.Writer
	buf   bytes.Buffer
	begun bool
}

func (p *yamlPrinter) object(o *object.Object) error {
	p.buf.Reset()
	if p.begun {
		p.buf.WriteString("---\n")
	}
	p.begun = true
	if err := writeYAML(&p.buf, o.JSON()); err != nil {
		return fmt.Errorf("%s: %w", o.Key(), err)
	}
	_, err := p.w.Write(p.buf.Bytes())
	return err
}

func (*yamlPrinter) end() error { return nil }

// writeYAML uses each encoder once: an encoder keeps all that it has encoded in memory.
func writeYAML(w io.Writer, raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	if err == nil {
		v, err = exactNumbers(v)
	}
	if err != nil {
		return err
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	e.CompactSeqIndent() // as kubectl prints lists
	return errors.Join(e.Encode(v), e.Close())
}

// exactNumbers replaces JSON numbers, in place, by the Go type that holds them without loss, if
// there is one.
func exactNumbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i, nil
		}
		if u, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return u, nil
		}
		return v.Float64()
	case map[string]any:
		for key, item := range v {
			if v[key], err = exactNumbers(item); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, item := range v {
			if v[i], err = exactNumbers(item); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
