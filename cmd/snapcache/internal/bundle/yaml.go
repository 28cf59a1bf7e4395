package bundle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// errLargeYAML is the error of a file, from the object on that is too large.
var errLargeYAML = fmt.Errorf("an object of more than %d MiB of YAML", maxYAMLBytes>>20)

// yamlParts splits YAML before each item of a sequence that is not indented, as a list of objects is, so
// that one object is decoded at a time. Blank lines and comments between the parts are skipped.
func yamlParts(in *bufio.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var part []byte
		item := []byte("- ")
		for ended := false; !ended; {
			line, err := in.ReadSlice('\n')
			blank := len(bytes.TrimSpace(line)) == 0
			if errors.Is(err, bufio.ErrBufferFull) {
				if err = nil; !blank {
					err = errLargeYAML
				}
			}
			if ended = errors.Is(err, io.EOF); err != nil && !ended {
				yield(nil, err)
				return
			}
			if bytes.HasPrefix(line, item) && bytes.HasPrefix(part, item) {
				if !yield(part, nil) {
					return
				}
				part = part[:0]
			}
			if len(part) == 0 && (blank || line[0] == '#') {
				continue
			}
			if part = append(part, line...); len(part) > maxYAMLBytes {
				yield(nil, errLargeYAML)
				return
			}
		}
		if len(part) > 0 {
			yield(part, nil)
		}
	}
}

// yamlToJSON converts an object. It has no aliases, because a long text with many of them would be as many
// texts: a program that writes objects writes none.
func yamlToJSON(part []byte) ([]byte, error) {
	var document yamlnode.Node
	if err := yamlnode.Unmarshal(part, &document); err != nil {
		return nil, err
	}
	if err := checkNodes(&document, new(int)); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(part)
}

// checkNodes returns an error if there is an alias, or there are too many nodes. count has the nodes before.
func checkNodes(n *yamlnode.Node, count *int) error {
	*count++
	switch {
	case n.Kind == yamlnode.AliasNode:
		return fmt.Errorf("line %d: an alias, *%s, which no object has", n.Line, n.Value)
	case *count > maxYAMLNodes:
		return fmt.Errorf("an object of more than %d values of YAML", maxYAMLNodes)
	}
	for _, child := range n.Content {
		if err := checkNodes(child, count); err != nil {
			return err
		}
	}
	return nil
}
