package yamltext

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

const (
	// maxYAMLKey is the longest key, in bytes, that the YAML library prints without "? ".
	maxYAMLKey = 128
	yamlIndent = 2
)

// Write writes a document as the YAML library does, byte for byte, at a fraction of its cost:
// the library spends a millisecond on a pod. Rare values, such as a string of several lines, are
// left to the library.
//
// The text equals the result of sigs.k8s.io/yaml's JSONToYAML, but for any JSON. JSONToYAML reads the
// JSON with a YAML parser, which refuses some valid JSON ("\/", escaped surrogate pairs, the
// characters U+007F and U+FFFF, keys of more than 1024 bytes), and writes the key "<<" in a way
// that reads as a merge instruction.
func Write(b *bytes.Buffer, raw []byte) error {
	y := yamlText{d: jsontext.NewDecoder(bytes.NewBuffer(raw)), text: b.AvailableBuffer()}
	if err := y.children(0, true); err == nil && len(y.text) > 0 {
		b.Write(y.text)
		return nil
	}
	return writeByLibrary(b, raw)
}

// WriteItem writes an item of a list that begins in the first column.
func WriteItem(b *bytes.Buffer, raw []byte) error {
	y := yamlText{d: jsontext.NewDecoder(bytes.NewBuffer(raw)), text: append(b.AvailableBuffer(), '-')}
	if err := y.value(0, true); err == nil {
		b.Write(y.text)
		return nil
	}
	return writeByLibrary(b, slices.Concat([]byte("["), raw, []byte("]")))
}

// writeByLibrary writes any JSON.
func writeByLibrary(b *bytes.Buffer, raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	if err == nil {
		v, err = exact(v)
	}
	if err != nil {
		return err
	}
	return encodeYAML(b, v)
}

// exact replaces JSON numbers, in place, by the Go type that holds them without loss, if there is
// one. A text that begins with a tab gets quotes: the library would write it in a way that no parser
// reads.
func exact(v any) (any, error) {
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
	case string:
		if strings.HasPrefix(v, "\t") {
			return &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: v}, nil
		}
	case map[string]any:
		for key, item := range v {
			if v[key], err = exact(item); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, item := range v {
			if v[i], err = exact(item); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// encodeYAML makes the library write a value. Each encoder is used once: an encoder keeps all that
// it has encoded in memory.
func encodeYAML(b *bytes.Buffer, v any) error {
	e := yaml.NewEncoder(b)
	e.SetIndent(yamlIndent)
	e.CompactSeqIndent() // as kubectl prints lists
	return errors.Join(e.Encode(v), e.Close())
}

// errOnlyLibrary means that only the library can write an object: of a key with quotes, or of a
// string with Unicode's own line breaks, which it indents.
var errOnlyLibrary = errors.New("not a plain key or value")

// yamlText converts the JSON that d reads.
type yamlText struct {
	d             *jsontext.Decoder
	text, scratch []byte
}

type yamlChild struct {
	key  string // empty in a list
	text []byte // from the key or the dash on
}

// children appends the members of an object, in the library's order, or the items of a list. Their
// lines are indented, except for the first one if inline is set.
func (y *yamlText) children(indent int, inline bool) error {
	opening, err := y.d.ReadToken()
	if err != nil {
		return err
	}
	isList := opening.Kind() == '['
	start := len(y.text)
	var all []yamlChild
	for y.d.PeekKind() != opening.Kind()+2 { // '}' or ']'
		from, child := len(y.text), yamlChild{}
		if isList {
			y.text = append(y.text, '-')
		} else if child.key, err = y.key(); err != nil {
			return err
		}
		if err := y.value(indent, isList); err != nil {
			return err
		}
		child.text = y.text[from:]
		all = append(all, child)
	}
	if !isList {
		if err := sortAsYAML(all); err != nil {
			return err
		}
	}
	y.scratch = y.scratch[:0]
	for i, child := range all {
		if i > 0 || !inline {
			y.scratch = appendSpaces(y.scratch, indent)
		}
		y.scratch = append(y.scratch, child.text...)
	}
	y.text = append(y.text[:start], y.scratch...)
	_, err = y.d.ReadToken()
	return err
}

// key appends the key of the next member, with its colon.
func (y *yamlText) key() (string, error) {
	token, err := y.d.ReadToken()
	if err != nil {
		return "", err
	}
	key := token.String()
	if len(key) > maxYAMLKey || yamlQuote(key) != ' ' {
		return "", errOnlyLibrary
	}
	y.text = append(append(y.text, key...), ':')
	return key, nil
}

// value appends the next value to its key or dash, which is in column indent.
func (y *yamlText) value(indent int, inList bool) error {
	switch kind := y.d.PeekKind(); kind {
	case '{', '[':
		if kind == '{' || inList {
			indent += yamlIndent
		}
		separator := len(y.text)
		y.text = append(y.text, '\n')
		if inList {
			y.text[separator] = ' '
		}
		err := y.children(indent, inList)
		if err == nil && len(y.text) == separator+1 {
			y.text = append(y.text[:separator], ' ', byte(kind), byte(kind+2), '\n')
		}
		return err
	default:
		token, err := y.d.ReadToken()
		if err == nil {
			y.text, err = appendScalar(y.text, token, indent)
		}
		return err
	}
}

func appendScalar(b []byte, token jsontext.Token, indent int) ([]byte, error) {
	s := token.String()
	switch token.Kind() {
	case '0':
		v, err := exact(json.Number(s))
		if _, isFloat := v.(float64); isFloat || err != nil {
			return appendByLibrary(b, json.Number(s), indent)
		}
		s = fmt.Sprint(v)
	case '"':
		switch yamlQuote(s) {
		case 0:
			if strings.ContainsAny(s, "\u2028\u2029") {
				return nil, errOnlyLibrary
			}
			return appendByLibrary(b, s, indent)
		case '\'':
			s = "'" + strings.ReplaceAll(s, "'", "''") + "'"
		case '"':
			s = `"` + s + `"`
		}
	}
	return append(append(append(b, ' '), s...), '\n'), nil
}

// yamlQuote returns the quote that the library puts around a string, a space for none; 0 if only the
// library can write the string.
func yamlQuote(s string) byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return 0
		}
	}
	resolved := yaml.Node{Kind: yaml.ScalarNode, Value: s}
	switch {
	case resolved.ShortTag() != "!!str": // reads as a number, a date, null and so on
		return '"'
	case len(s) <= len("off") && strings.IndexByte("yYnNoO", s[0]) >= 0, // perhaps a boolean of YAML 1.1
		strings.IndexByte("+-0123456789", s[0]) >= 0 && strings.IndexByte(s, ':') > 0: // or a number to base 60
		return 0
	case strings.IndexByte("#,[]{}&*!|>'\"%@` ", s[0]) >= 0, s[len(s)-1] == ' ', s[len(s)-1] == ':',
		strings.HasPrefix(s, "---"), strings.HasPrefix(s, "..."), s == "-", s == "?",
		strings.HasPrefix(s, "- "), strings.HasPrefix(s, "? "), strings.Contains(s, ": "), strings.Contains(s, " #"):
		return '\''
	}
	return ' '
}

// appendByLibrary appends a scalar to its key or dash, which is in column indent.
func appendByLibrary(b []byte, v any, indent int) ([]byte, error) {
	v, err := exact(v)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := encodeYAML(&text, []any{v}); err != nil {
		return nil, err
	}
	for i, line := range bytes.SplitAfter(text.Bytes()[len("-"):], []byte("\n")) {
		if i > 0 && len(line) > len("\n") {
			b = appendSpaces(b, indent)
		}
		b = append(b, line...)
	}
	return b, nil
}

func appendSpaces(b []byte, n int) []byte {
	for range n {
		b = append(b, ' ')
	}
	return b
}

// sortAsYAML sorts plain keys as the library does: letters come after other characters. Digits it
// compares as numbers, so it is asked for the order if a key has some.
func sortAsYAML(members []yamlChild) error {
	if !slices.ContainsFunc(members, func(m yamlChild) bool { return strings.ContainsAny(m.key, "0123456789") }) {
		slices.SortFunc(members, func(a, b yamlChild) int { return slices.CompareFunc([]byte(a.key), []byte(b.key), compareInKeys) })
		return nil
	}
	places := make(map[string]int, len(members))
	for _, m := range members {
		places[m.key] = 0
	}
	var text bytes.Buffer
	if err := encodeYAML(&text, places); err != nil {
		return err
	}
	n := 0
	for key := range strings.SplitSeq(text.String(), ": 0\n") {
		places[key] = n
		n++
	}
	slices.SortFunc(members, func(a, b yamlChild) int { return cmp.Compare(places[a.key], places[b.key]) })
	return nil
}

// compareInKeys compares characters of keys that have no digits.
func compareInKeys(a, b byte) int {
	isLetter := func(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
	switch {
	case isLetter(a) == isLetter(b):
		return cmp.Compare(a, b)
	case isLetter(a):
		return 1
	}
	return -1
}
