package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// document is a configuration file while it is decoded: its tree, and the line of every field in
// it.
//
// The tree is checked against the Go types before anything is decoded, because the decoder stops at
// its first error, has no line numbers, and is too lenient (letter case, text that looks like a
// number or a boolean). Bad fields are reported and left out. The rest is decoded and validated
// too, so that one run reports all errors.
type document struct {
	name    string
	root    *yamlnode.Node
	lines   map[string]int
	bad     map[string]bool // fields with an error
	badPart map[string]bool // fields that contain such a field
	errs    []*Error
}

// openDocument parses the YAML and checks that it is an AgentConfiguration. It returns one error
// for any other file, in which every field would be an error.
func openDocument(name string, data []byte) (*document, error) {
	if err := checkText(name, data); err != nil {
		return nil, err
	}
	fail := func(line int, format string, args ...any) (*document, error) {
		return nil, &Error{File: name, Line: line, Message: oneLine(fmt.Sprintf(format, args...))}
	}
	var tree, next yamlnode.Node
	decoder := yamlnode.NewDecoder(bytes.NewReader(data))
	switch err := decoder.Decode(&tree); {
	case errors.Is(err, io.EOF):
		return fail(0, "the file is empty%s", orComments(data))
	case err != nil:
		line, message := syntaxError(data, err)
		return fail(line, "not valid YAML: %s", message)
	}
	switch err := decoder.Decode(&next); {
	case err == nil:
		return fail(next.Line, "a second YAML document begins here: a file holds one configuration")
	case !errors.Is(err, io.EOF):
		line, message := syntaxError(data, err)
		return fail(line, "not valid YAML: %s", message)
	}
	root := tree.Content[0]
	if isNull(root) {
		return fail(0, "the file is empty%s", orComments(data))
	}
	if root.Kind != yamlnode.MappingNode {
		return fail(root.Line, "%s %s expected, found %s", APIVersion, Kind, describe(root))
	}
	apiVersion, kind := scalarAt(root, "apiVersion"), scalarAt(root, "kind")
	if apiVersion.Value != APIVersion || kind.Value != Kind {
		line := max(apiVersion.Line, root.Line)
		if apiVersion.Value == APIVersion {
			line = max(kind.Line, root.Line)
		}
		return fail(line, "%s", wrongKind(apiVersion.Value, kind.Value))
	}
	return &document{name: name, root: root, lines: map[string]int{}, bad: map[string]bool{}, badPart: map[string]bool{}}, nil
}

func orComments(data []byte) string {
	only := ""
	if len(bytes.TrimSpace(data)) > 0 {
		only = " except for comments"
	}
	return fmt.Sprintf("%s: it needs at least apiVersion: %s and kind: %s", only, APIVersion, Kind)
}

var (
	syntaxLine    = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)
	parserError   = regexp.MustCompile(`^did not find expected (<document start>|node content|'-' indicator|key$|',' or )`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntaxError splits the line off the parser's message, or finds the line if the message has none.
func syntaxError(data []byte, err error) (int, string) {
	match := syntaxLine.FindStringSubmatch(err.Error())
	message := err.Error()[len(match[0]):]
	line, _ := strconv.Atoi(match[1])
	if line > 0 && parserError.MatchString(message) {
		line++ // the library's parser counts lines from 0, its scanner from 1
	}
	if line == 0 {
		at := 0 // the parser omits the line if it is the first
		if anchor := unknownAnchor.FindStringSubmatch(message); anchor != nil {
			at = bytes.Index(data, []byte("*"+anchor[1]))
		} else if strings.HasPrefix(message, "control characters") {
			at = bytes.IndexFunc(data, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) })
		}
		line = 1 + bytes.Count(data[:max(at, 0)], []byte("\n"))
	}
	if strings.HasSuffix(message, "cannot start any token") {
		if text := bytes.Split(data, []byte("\n")); line <= len(text) && bytes.HasPrefix(bytes.TrimLeft(text[line-1], " "), []byte("\t")) {
			message += ": indent with spaces, not with tabs"
		}
	}
	return line, message
}

// scalarAt returns the value of a key of the root, or an empty node if there is none.
func scalarAt(root *yamlnode.Node, name string) *yamlnode.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == name && root.Content[i+1].Kind == yamlnode.ScalarNode {
			return root.Content[i+1]
		}
	}
	return &yamlnode.Node{}
}

func (d *document) decode() *AgentConfiguration {
	c := &AgentConfiguration{}
	clean := d.walk(d.root, reflect.TypeFor[AgentConfiguration](), "")
	data, err := json.Marshal(clean)
	if err == nil {
		err = yaml.UnmarshalStrict(data, c)
	}
	if err != nil {
		// Not expected: the walk has checked everything that the decoder can fail on.
		d.add(d.root.Line, "", "%v", err)
	}
	return c
}

// report adds a problem found by validation, unless the walk has reported the same field, a field
// around it or a part of it: then the problem is a consequence of that error.
func (d *document) report(p *Error) {
	if d.badPart[p.Field] {
		return
	}
	for path := p.Field; path != ""; path = parentPath(path) {
		if d.bad[path] {
			return
		}
	}
	p.File, p.Line = d.name, d.lineOf(p.Field)
	d.errs = append(d.errs, p)
}

// lineOf returns the line of a field, or of the innermost field around it that is in the file. It
// is 0 if the field's section isn't in the file.
func (d *document) lineOf(field string) int {
	for ; field != ""; field = parentPath(field) {
		if line, ok := d.lines[field]; ok {
			return line
		}
	}
	return 0
}

// parentPath returns the path of the field around path: resources[2].namespaces is in resources[2],
// which is in resources, which is in "".
func parentPath(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

func (d *document) add(line int, field, format string, args ...any) {
	d.markBad(field)
	d.errs = append(d.errs, &Error{File: d.name, Line: line, Field: field, Message: oneLine(fmt.Sprintf(format, args...))})
}

func (d *document) markBad(field string) {
	d.bad[field] = true
	for path := parentPath(field); path != "" && !d.badPart[path]; path = parentPath(path) {
		d.badPart[path] = true
	}
}

func (d *document) err() error { return join(d.errs) }
