package selector

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/store"
)

// Attributes are the values of an object that selectors look at. The key is not among them.
type Attributes struct {
	Labels map[string]string
	Fields map[string]string // without metadata.name and metadata.namespace; a missing one is ""
}

// Values returns the attributes as the values of a [store.Index], in order. [FromValues] reads them.
// Equal attributes have equal values; there are none if there are no labels and all fields are empty.
//
// Nearly always there is one value. It has a line name=value for each label, in order of the names,
// then, if a field is not empty, an empty line and such a line for each of these. Lines are separated
// by \n. In names and values a backslash is written as \\, a line feed as \n, a zero byte as \0, and
// = as \e:
//
//	app=till
//	tier=
//
//	spec.nodeName=edge-1
//
// If that is longer than [store.MaxIndexValueBytes], it is cut into several values, each of which
// begins with its number from 0, in four hexadecimal digits.
func (a Attributes) Values() []string { return encode(pairs(a.Labels), pairs(a.Fields)) }

// pair is a label or a field.
type pair struct{ name, value string }

// pairs returns the pairs of a map in order.
func pairs(m map[string]string) []pair {
	all := make([]pair, 0, len(m))
	for name, value := range m {
		all = append(all, pair{name, value})
	}
	slices.SortFunc(all, byName)
	return all
}

func byName(a, b pair) int { return strings.Compare(a.name, b.name) }

// encode returns the values of labels and fields, see [Attributes.Values]. Both are in order.
func encode(labels, fields []pair) []string {
	b := make([]byte, 0, 512)
	for _, x := range labels {
		b = appendLine(b, x)
	}
	end := len(b)
	for _, x := range fields {
		if x.value == "" {
			continue
		}
		if len(b) == end {
			b = append(b, '\n')
		}
		b = appendLine(b, x)
	}
	text := string(bytes.TrimSuffix(b, []byte("\n")))
	if text == "" {
		return nil
	}
	if len(text) <= store.MaxIndexValueBytes {
		return []string{text}
	}
	var values []string
	for len(text) > 0 {
		n := min(len(text), store.MaxIndexValueBytes-numberLen)
		values = append(values, fmt.Sprintf("%0*x", numberLen, len(values))+text[:n])
		text = text[n:]
	}
	return values
}

func appendLine(b []byte, x pair) []byte {
	b = append(append(b, escape.Replace(x.name)...), '=')
	return append(append(b, escape.Replace(x.value)...), '\n')
}

// numberLen is the length of the number of a value. It is enough for any object, see
// [object.MaxBytes].
const numberLen = 4

// FromValues reads the result of [Attributes.Values].
func FromValues(values []string) Attributes {
	text := strings.Join(values, "")
	if len(values) > 1 {
		var b strings.Builder
		for _, v := range values {
			b.WriteString(v[min(numberLen, len(v)):])
		}
		text = b.String()
	}
	var a Attributes
	into := &a.Labels
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		if line == "" {
			into = &a.Fields
			continue
		}
		if *into == nil {
			*into = make(map[string]string)
		}
		name, value, _ := strings.Cut(line, "=")
		(*into)[unescape.Replace(name)] = unescape.Replace(value)
	}
	return a
}

var (
	escape   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\x00", `\0`, "=", `\e`)
	unescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\0`, "\x00", `\e`, "=")
)
