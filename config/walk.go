package config

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/xrash/smetrics"
	yamlnode "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	durationType        = reflect.TypeFor[metav1.Duration]()
	quantityType        = reflect.TypeFor[resource.Quantity]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// walk checks a node against its type t and returns its value in JSON's terms, or nil if it is null
// or bad. The depth is limited by the depth of the Go types.
func (d *document) walk(n *yamlnode.Node, t reflect.Type, path string) any {
	if n.Kind == yamlnode.AliasNode {
		// A configuration is too short to need aliases, and without them a file can't grow while it
		// is decoded.
		d.wrong(n, path, "YAML aliases are not supported: write out the value of *%s", cut(n.Value))
		return nil
	}
	switch {
	case isNull(n):
		return nil
	case t == durationType:
		return d.duration(n, path, false)
	case t == reflect.PointerTo(durationType):
		return d.duration(n, path, true)
	case t == quantityType:
		return d.quantity(n, path)
	case reflect.PointerTo(t).Implements(textUnmarshalerType):
		return d.text(n, path, func(s string) error {
			return reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s))
		})
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.mapping(n, t, path)
	case reflect.Slice:
		return d.sequence(n, t, path)
	case reflect.String:
		return d.text(n, path, func(string) error { return nil })
	case reflect.Bool:
		if n.Kind != yamlnode.ScalarNode || n.Tag != "!!bool" {
			d.wrong(n, path, "true or false expected, found %s", describe(n))
			return nil
		}
		return strings.EqualFold(n.Value, "true")
	case reflect.Int:
		return d.number(n, path)
	default:
		panic("config: no rule for reading a " + t.String()) // a programming error, which any test finds
	}
}

func (d *document) mapping(n *yamlnode.Node, t reflect.Type, path string) any {
	if n.Kind != yamlnode.MappingNode {
		d.wrong(n, path, "fields expected (%s), found %s", strings.Join(fieldNames(t), ", "), describe(n))
		return nil
	}
	values := make(map[string]any, len(n.Content)/2)
	first := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := childPath(path, key)
		if key.Kind != yamlnode.ScalarNode || key.Tag == "!!merge" {
			d.add(key.Line, path, "the name of a field expected, found %s", describe(key))
			continue
		}
		if line, twice := first[key.Value]; twice {
			d.add(key.Line, field, "given twice, first on line %d", line)
			continue
		}
		first[key.Value] = key.Line
		fieldType, known := fieldByName(t, key.Value)
		if !known {
			d.unknown(key, t, path, field)
			continue
		}
		d.lines[field] = key.Line
		if v := d.walk(value, fieldType, field); v != nil {
			values[key.Value] = v
		}
	}
	return values
}

// unknown reports a field that doesn't exist, with the name that was probably meant, or with the
// names that exist.
func (d *document) unknown(key *yamlnode.Node, t reflect.Type, path, field string) {
	names := fieldNames(t)
	if meant := nearest(key.Value, names); meant != "" {
		d.add(key.Line, field, "unknown field: did you mean %s?", meant)
		// The field that was meant gets no second error for being missing.
		d.markBad(strings.TrimPrefix(path+"."+meant, "."))
		return
	}
	d.add(key.Line, field, "unknown field: the fields here are %s", strings.Join(names, ", "))
}

func (d *document) sequence(n *yamlnode.Node, t reflect.Type, path string) any {
	if n.Kind != yamlnode.SequenceNode {
		d.wrong(n, path, "a list expected, found %s", describe(n))
		return nil
	}
	values := make([]any, len(n.Content))
	for i, item := range n.Content {
		field := fmt.Sprintf("%s[%d]", path, i)
		d.lines[field] = item.Line
		if isNull(item) {
			d.add(item.Line, field, "the entry is empty")
			continue
		}
		values[i] = d.walk(item, t.Elem(), field)
	}
	return values
}

// wrong reports a node at the line of its field. A block's field is on the line above the block.
func (d *document) wrong(n *yamlnode.Node, path, format string, args ...any) {
	line := n.Line
	if l, ok := d.lines[path]; ok {
		line = l
	}
	d.add(line, path, format, args...)
}

// text reads a text field. It accepts only text, because a plain 0123 or 1e3 would be decoded as a
// text that differs from the file's.
func (d *document) text(n *yamlnode.Node, path string, check func(string) error) any {
	if n.Kind != yamlnode.ScalarNode {
		d.wrong(n, path, "text expected, found %s", describe(n))
		return nil
	}
	if n.Tag != "!!str" {
		d.wrong(n, path, "text expected, found %s: put it in quotes", describe(n))
		return nil
	}
	for _, r := range n.Value {
		// Usually the line break at the end of a block, or a space copied from a web page.
		if !unicode.IsPrint(r) {
			d.wrong(n, path, "the character %U is not allowed here: give one line of plain text", r)
			return nil
		}
	}
	if err := check(n.Value); err != nil {
		d.wrong(n, path, "%v", err)
		return nil
	}
	return n.Value
}

// duration reads a duration. zero means that 0 is a value of its own, not the default.
func (d *document) duration(n *yamlnode.Node, path string, zero bool) any {
	duration, err := time.ParseDuration(n.Value)
	if n.Kind != yamlnode.ScalarNode || err != nil {
		d.wrong(n, path, "a duration expected, as in 500ms, 5s or 1m30s, found %s", describe(n))
		return nil
	}
	if duration == 0 && !zero {
		d.wrong(n, path, "%s is zero, which would mean the default: leave the field out for that", quote(n.Value))
		return nil
	}
	return n.Value
}

// number reads a whole number. 0 is refused, because it would mean the default.
func (d *document) number(n *yamlnode.Node, path string) any {
	i, err := strconv.Atoi(n.Value)
	if n.Kind != yamlnode.ScalarNode || n.Tag != "!!int" || err != nil || strconv.Itoa(i) != n.Value {
		d.wrong(n, path, "a whole number expected, found %s", describe(n))
		return nil
	}
	if i == 0 {
		d.wrong(n, path, "0 would mean the default: leave the field out for that")
		return nil
	}
	return i
}

// quantityPattern matches the subset of Kubernetes' quantities that are useful as sizes. Exponents
// are excluded because resource.ParseQuantity computes with their size: 1e999999999 keeps it busy
// for ever.
var quantityPattern = regexp.MustCompile(`^([1-9][0-9]{0,17}|[0-9]{1,6}(\.[0-9]{1,6})?([KMGT]i|[kMGT]))$`)

func (d *document) quantity(n *yamlnode.Node, path string) any {
	if n.Kind != yamlnode.ScalarNode || !quantityPattern.MatchString(n.Value) {
		d.wrong(n, path, "a size expected, as in 512Mi or 1Gi, found %s", describe(n))
		return nil
	}
	if q, err := resource.ParseQuantity(n.Value); err != nil {
		d.wrong(n, path, "%v", err)
		return nil
	} else if q.IsZero() {
		d.wrong(n, path, "%s is zero, which would mean the default: leave the field out for that", quote(n.Value))
		return nil
	}
	return n.Value
}

func isNull(n *yamlnode.Node) bool { return n.Kind == yamlnode.ScalarNode && n.Tag == "!!null" }

func describe(n *yamlnode.Node) string {
	switch n.Kind {
	case yamlnode.MappingNode:
		return "fields"
	case yamlnode.SequenceNode:
		return "a list"
	case yamlnode.AliasNode:
		return "the alias *" + cut(n.Value)
	}
	switch n.Tag {
	case "!!str":
		return "the text " + quote(n.Value)
	case "!!int", "!!float":
		return "the number " + cut(n.Value)
	case "!!timestamp":
		return "the date " + cut(n.Value)
	case "!!merge":
		return "a merge key, which is not supported"
	default:
		return cut(n.Value)
	}
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// childPath returns the path of a field as the file names it. A name that can't be a field's is
// quoted.
func childPath(path string, key *yamlnode.Node) string {
	name := key.Value
	if !plainName.MatchString(name) {
		name = oneLine(quote(name))
	}
	return strings.TrimPrefix(path+"."+name, ".")
}

// fieldNames returns the names of a type's fields in the file, in the order of the type.
func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return names
}

func fieldByName(t reflect.Type, name string) (reflect.Type, bool) {
	for i, n := range fieldNames(t) {
		if n == name {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}

// nearest returns the name that was probably meant: the same in another case, or a typing error
// away.
func nearest(name string, names []string) string {
	const longest = 40 // bytes; the distance costs the product of both lengths
	if len(name) > longest {
		return ""
	}
	best, distance := "", 0
	for _, n := range names {
		d := smetrics.WagnerFischer(strings.ToLower(name), strings.ToLower(n), 1, 1, 1)
		// A third of the letters may differ, and at least one.
		if d <= max(1, len(n)/3) && (best == "" || d < distance) {
			best, distance = n, d
		}
	}
	return best
}
