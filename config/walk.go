package config

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/xrash/smetrics"
	yamlnode "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// walk checks a node against v's type and sets v to its value. v stays zero if the node is null.
// The depth is limited by the depth of the Go types.
func (d *document) walk(n *yamlnode.Node, v reflect.Value, path string) {
	switch {
	case isNull(n):
		return
	case n.Kind == yamlnode.AliasNode:
		// Without aliases a file can't grow while it is decoded.
		d.add(0, path, "YAML aliases are not supported: write out the value of *%s", cut(n.Value))
		return
	}
	var err error
	expected, optional := "", false // for the error; whether 0 is a value of its own
	switch x := v.Addr().Interface().(type) {
	case **metav1.Duration:
		*x, optional = new(metav1.Duration), true
		expected = "a duration expected, as in 500ms, 5s or 1m30s"
		(*x).Duration, err = time.ParseDuration(n.Value)
	case *metav1.Duration:
		expected = "a duration expected, as in 500ms, 5s or 1m30s"
		x.Duration, err = time.ParseDuration(n.Value)
	case *resource.Quantity:
		expected = "a size expected, as in 512Mi or 1Gi"
		*x, err = parseSize(n.Value)
	case *int:
		expected = "a whole number expected"
		if *x, err = strconv.Atoi(n.Value); strconv.Itoa(*x) != n.Value {
			err = strconv.ErrSyntax // 010 is 8 to YAML
		}
	case *bool:
		optional, expected = true, "true or false expected"
		if n.Tag != "!!bool" {
			err = strconv.ErrSyntax
		} else {
			err = n.Decode(x)
		}
	case encoding.TextUnmarshaler:
		if text, ok := d.text(n, path); ok {
			if err := x.UnmarshalText([]byte(text)); err != nil {
				d.add(0, path, "%v", err)
			}
		}
		return
	default:
		switch v.Kind() {
		case reflect.Struct:
			d.mapping(n, v, path)
		case reflect.Slice:
			d.sequence(n, v, path)
		case reflect.String:
			text, _ := d.text(n, path)
			v.SetString(text)
		default:
			panic("config: no rule for reading a " + v.Type().String()) // a programming error, which any test finds
		}
		return
	}
	if err != nil || n.Kind != yamlnode.ScalarNode {
		d.add(0, path, "%s, found %s", expected, describe(n))
	} else if !optional && v.IsZero() {
		d.add(0, path, "%s would mean the default: leave the field out for that", cut(n.Value))
	}
}

func (d *document) mapping(n *yamlnode.Node, v reflect.Value, path string) {
	names, fields := fieldsOf(v.Type())
	if n.Kind != yamlnode.MappingNode {
		d.add(0, path, "fields expected (%s), found %s", strings.Join(names, ", "), describe(n))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yamlnode.ScalarNode || key.Tag == "!!merge" {
			d.add(key.Line, path, "the name of a field expected, found %s", describe(key))
			continue
		}
		field := childPath(path, key.Value)
		index := slices.Index(names, key.Value)
		if line := d.lines[field]; line > 0 {
			d.add(key.Line, field, "given twice, first on line %d", line)
		} else if index >= 0 {
			d.lines[field] = key.Line
			d.walk(n.Content[i+1], v.FieldByIndex(fields[index].Index), field)
		} else if meant := nearest(key.Value, names); meant != "" {
			d.add(key.Line, field, "unknown field: did you mean %s?", meant)
			d.bad = append(d.bad, childPath(path, meant)) // it gets no second error for being missing
		} else {
			d.add(key.Line, field, "unknown field: the fields here are %s", strings.Join(names, ", "))
		}
	}
}

func (d *document) sequence(n *yamlnode.Node, v reflect.Value, path string) {
	if n.Kind != yamlnode.SequenceNode {
		d.add(0, path, "a list expected, found %s", describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		field := fmt.Sprintf("%s[%d]", path, i)
		d.lines[field] = item.Line
		if isNull(item) {
			d.add(item.Line, field, "the entry is empty")
		}
		d.walk(item, v.Index(i), field)
	}
}

// text reads a text field. It accepts only text, so that a plain 0123 or 1e3 has one meaning.
func (d *document) text(n *yamlnode.Node, path string) (string, bool) {
	if n.Kind != yamlnode.ScalarNode || n.Tag != "!!str" {
		quotes := ""
		if n.Kind == yamlnode.ScalarNode {
			quotes = ": put it in quotes"
		}
		d.add(0, path, "text expected, found %s%s", describe(n), quotes)
		return "", false
	}
	for _, r := range n.Value {
		// Usually the line break at the end of a block, or a space copied from a web page.
		if !unicode.IsPrint(r) {
			d.add(0, path, "the character %U is not allowed here: give one line of plain text", r)
			return "", false
		}
	}
	return n.Value, true
}

// sizePattern matches the subset of Kubernetes' quantities that are useful as sizes. Exponents are
// excluded because resource.ParseQuantity computes with their size: 1e999999999 keeps it busy for
// ever.
var sizePattern = regexp.MustCompile(`^([1-9][0-9]{0,17}|[0-9]{1,6}(\.[0-9]{1,6})?([KMGT]i|[kMGT]))$`)

func parseSize(s string) (resource.Quantity, error) {
	if !sizePattern.MatchString(s) {
		return resource.Quantity{}, strconv.ErrSyntax
	}
	q, err := resource.ParseQuantity(s)
	if q.IsZero() {
		q = resource.Quantity{} // without the unit
	}
	return q, err
}

func isNull(n *yamlnode.Node) bool { return n.Kind == yamlnode.ScalarNode && n.Tag == "!!null" }

func describe(n *yamlnode.Node) string {
	switch n.Kind {
	case yamlnode.MappingNode:
		return "fields"
	case yamlnode.SequenceNode:
		return "a list"
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

// childPath returns the path of a field. A name that can't be a field's is quoted.
func childPath(path, name string) string {
	if !plainName.MatchString(name) {
		name = printable(quote(name))
	}
	return strings.TrimPrefix(path+"."+name, ".")
}

// fieldsOf returns a type's fields and their names in the file, in the order of the type.
func fieldsOf(t reflect.Type) (names []string, fields []reflect.StructField) {
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names, fields = append(names, name), append(fields, f)
		}
	}
	return names, fields
}

// nearest returns the name that was probably meant: in another case, or a typing error away.
func nearest(name string, names []string) string {
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
