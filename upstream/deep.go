package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/object"
)

// maxDepth is how deep an object may be nested: a kube-apiserver, its clients and this program decode as
// much. A decoder of a list counts the list around an object, so it gives up two levels before.
const maxDepth = 10_000

// isDeep reports whether a JSON decoder gave up because of the depth.
func isDeep(err error) bool {
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	return ok && strings.Contains(syntax.Err.Error(), "max depth") // jsontext has no name for it
}

// deepItem reads an item of a list that dec found nested too deep, and sets dec to the place after it.
// rest is the input of dec, and the result its input afterwards.
func deepItem(dec *jsontext.Decoder, rest io.Reader) (item []byte, _ io.Reader, err error) {
	buf := bytes.TrimLeft(bytes.Clone(dec.UnreadBuffer()), ", \t\r\n")
	var n nesting
	for {
		if end := n.end(buf); end > 0 {
			item, rest = buf[:end:end], io.MultiReader(bytes.NewReader(buf[end:]), rest)
			break
		}
		if len(buf) > maxObject {
			return nil, rest, ErrTooLarge
		}
		more := make([]byte, frameBuffer)
		k, err := rest.Read(more)
		buf = append(buf, more[:k]...)
		if err != nil && k == 0 {
			return nil, rest, cutOff(err)
		}
	}
	const before = `{"items":[0` // dec is in the items of a list again
	dec.Reset(io.MultiReader(strings.NewReader(before), rest),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for range 4 {
		if _, err := dec.ReadToken(); err != nil {
			return nil, rest, err
		}
	}
	return item, rest, nil
}

// nesting finds the end of a JSON object by its brackets, and how deep it is nested. It checks nothing else.
type nesting struct {
	at, depth, deepest int
	quoted, escaped    bool
}

// end returns the length of the object that b begins with, 0 if that is not in b yet. b is longer with
// each call.
func (n *nesting) end(b []byte) int {
	for ; n.at < len(b); n.at++ {
		switch c := b[n.at]; {
		case n.escaped:
			n.escaped = false
		case n.quoted && c == '\\':
			n.escaped = true
		case c == '"':
			n.quoted = !n.quoted
		case n.quoted:
		case c == '{' || c == '[':
			n.depth++
			n.deepest = max(n.deepest, n.depth)
		case c == '}' || c == ']':
			if n.depth--; n.depth <= 0 {
				n.at++
				return n.at
			}
		}
	}
	return 0
}

// tooDeep reports whether b is one object that is nested deeper than maxDepth.
func tooDeep(b []byte) bool {
	var n nesting
	return len(b) > maxDepth && b[0] == '{' && n.end(b) == len(b) && n.deepest > maxDepth
}

// deep is item for JSON that was not checked, because it is nested too deep for the decoder that found
// it. It may not be without its list, or without the fields that are pruned: managedFields repeat the
// nesting of an object, some levels deeper.
func (d decoding) deep(raw []byte) (o *object.Object, typed bool, err error) {
	rest, err := d.prune.Append(nil, raw)
	if err != nil {
		return nil, true, err
	}
	if !json.Valid(rest) {
		err = object.ErrInvalid
		if tooDeep(rest) {
			err = ErrTooDeep
		}
		return nil, true, fmt.Errorf("%s: %w", keyOf(raw), err)
	}
	return decoding{resource: d.resource}.item(rest)
}

// deepEvent is deep for the object of an event.
func (d decoding) deepEvent(raw []byte) runtime.Object {
	o, _, err := d.deep(raw)
	if err != nil {
		return &InvalidObject{Err: err, Key: keyOf(raw)}
	}
	return o
}

// keyOf returns the key of an object that can't be decoded.
func keyOf(raw []byte) string {
	m := gjson.GetManyBytes(raw, "metadata.namespace", "metadata.name")
	return object.Key(m[0].Str, m[1].Str)
}
