package selector

import (
	"fmt"
	"maps"
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
func (a Attributes) Values() []string {
	var b strings.Builder
	lines(&b, a.Labels, func(string) bool { return true })
	end := b.Len()
	lines(&b, a.Fields, func(value string) bool { return value != "" })
	text := b.String()
	switch {
	case text == "":
		return nil
	case len(text) > end: // there are fields
		text = text[:end] + "\n" + text[end:]
	}
	text = strings.TrimSuffix(text, "\n")
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

func lines(b *strings.Builder, values map[string]string, kept func(value string) bool) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if value := values[name]; kept(value) {
			b.WriteString(escape.Replace(name) + "=" + escape.Replace(value) + "\n")
		}
	}
}
