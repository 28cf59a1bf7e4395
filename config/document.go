package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	yamlnode "go.yaml.in/yaml/v3"
)

// Parse checks the configuration in data and fills in the defaults. Errors refer to the file as
// name. Every error is an [Error], or several joined.
func Parse(name string, data []byte) (*AgentConfiguration, error) {
	d := &document{name: name, lines: map[string]int{}}
	root, err := d.parse(data)
	if err != nil {
		return nil, err
	}
	c := &AgentConfiguration{}
	d.walk(root, reflect.ValueOf(c).Elem(), "")
	// In another kind of file every field would be an error.
	if root.Kind != yamlnode.MappingNode {
		return nil, d.fail(root.Line, "%s %s expected, found %s", APIVersion, Kind, describe(root))
	}
	if fault, field := c.wrongKind(); fault != "" {
		return nil, d.fail(cmp.Or(d.lines[field], root.Line), "%s", fault)
	}
	c.setDefaults(surround(name))
	if len(d.errs) <= maxErrors {
		for _, p := range c.problems() {
			d.report(p)
		}
	}
	if err := join(d.errs); err != nil {
		return nil, err
	}
	return c, nil
}

// document is a configuration file while it is decoded.
//
// The walk over the tree takes the place of a decoder, because decoders omit the field from their
// errors or stop at the first, and are too lenient (text that looks like a number, the octal 010).
// Bad fields are reported and left out. The rest is validated too, so that one run reports all
// errors.
type document struct {
	name  string
	lines map[string]int // of the fields in the file
	bad   []string       // fields with an error
	errs  []*Error
}

func (d *document) parse(data []byte) (*yamlnode.Node, error) {
	if err := checkText(d.name, data); err != nil {
		return nil, err
	}
	var tree, next yamlnode.Node
	decoder := yamlnode.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&tree)
	if errors.Is(err, io.EOF) || err == nil && isNull(tree.Content[0]) {
		return nil, d.fail(0, "the file is empty or has only comments: it needs at least apiVersion: %s and kind: %s", APIVersion, Kind)
	}
	if err == nil {
		if err = decoder.Decode(&next); err == nil {
			return nil, d.fail(next.Line, "a second YAML document begins here: a file holds one configuration")
		}
	}
	if !errors.Is(err, io.EOF) {
		line, message := syntaxError(data, err)
		return nil, d.fail(line, "not valid YAML: %s", message)
	}
	return tree.Content[0], nil
}

func (d *document) fail(line int, format string, args ...any) *Error {
	return &Error{File: d.name, Line: line, Message: printable(fmt.Sprintf(format, args...))}
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
	if anchor := unknownAnchor.FindStringSubmatch(message); anchor != nil {
		before, _, _ := bytes.Cut(data, []byte("*"+anchor[1]))
		line = 1 + bytes.Count(before, []byte("\n"))
	}
	switch {
	case line == 0:
		line = 1 // the parser omits the line if it is the first
	case parserError.MatchString(message):
		line++ // the library's parser counts lines from 0, its scanner from 1
	case strings.HasSuffix(message, "cannot start any token"):
		message += ": indent with spaces, not with tabs, and put text in quotes"
	}
	return line, message
}

// report adds a problem found by validation, unless the walk has reported the same field, a field
// around it or a part of it: then the problem is a consequence of that error.
func (d *document) report(p *Error) {
	if !slices.ContainsFunc(d.bad, func(bad string) bool { return within(p.Field, bad) || within(bad, p.Field) }) {
		p.File, p.Line = d.name, d.lineOf(p.Field)
		d.errs = append(d.errs, p)
	}
}

// lineOf returns the line of a field, or of the innermost field around it that is in the file. It
// is 0 if the field's section isn't in the file.
func (d *document) lineOf(field string) int {
	for field != "" && d.lines[field] == 0 {
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return d.lines[field]
}

// within reports whether path is the path of a field of parent, or parent itself.
func within(path, parent string) bool {
	rest, ok := strings.CutPrefix(path, parent)
	return ok && (rest == "" || strings.ContainsRune(".[", rune(rest[0])))
}

// add adds an error. A line of 0 stands for the field's own line.
func (d *document) add(line int, field, format string, args ...any) {
	e := d.fail(cmp.Or(line, d.lineOf(field)), format, args...)
	e.Field = field
	d.errs, d.bad = append(d.errs, e), append(d.bad, field)
}

// maxFileSize is in bytes. It refuses a wrong path, such as a database, before it is parsed.
const maxFileSize = 1 << 20

// Load reads and checks the configuration file at path, and fills in the defaults. Every error is
// an [Error], or several joined, and contains path. errors.Is reports fs.ErrNotExist and
// fs.ErrPermission.
func Load(path string) (*AgentConfiguration, error) {
	data, err := readFile(path)
	if err == nil {
		return Parse(path, data)
	}
	e := &Error{File: path, err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Message = fmt.Sprintf("no such file: create it with the two lines %q and %q, which is a complete configuration, "+
			"or leave out --config for the same", "apiVersion: "+APIVersion, "kind: "+Kind)
	case errors.Is(err, fs.ErrPermission):
		e.Message = "permission denied: make the file readable for the user that runs the agent"
	case errors.Is(err, syscall.EISDIR):
		e.Message = "is a directory: give the path of a configuration file"
	default:
		// The text of an fs.PathError would repeat the file's name.
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err
		}
		e.Message = printable(fmt.Sprintf("read failed: %v", err))
	}
	return nil, e
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: closing loses nothing
	return io.ReadAll(io.LimitReader(f, maxFileSize+1))
}

// checkText refuses a file that is not text or is too large.
func checkText(name string, data []byte) error {
	if len(data) > maxFileSize {
		return &Error{File: name, Message: "larger than 1 MiB: not a configuration file"}
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && !strings.ContainsRune("\t\r\n", r) {
			line := 1 + bytes.Count(data[:at], []byte("\n"))
			return &Error{File: name, Line: line, Message: fmt.Sprintf("not plain UTF-8 text (byte 0x%02x)", data[at])}
		}
		at += size
	}
	return nil
}
