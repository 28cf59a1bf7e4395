package object

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"
)

// ManagedFields is the path that is pruned unless the configuration keeps it. The field is half the
// bytes of a typical pod, and readers of a cache do not need it.
const ManagedFields = "metadata.managedFields"

// maxPath limits a path, in bytes: the key of a label or annotation may have 317.
const maxPath = 512

// fieldPath matches the path of a field. The form is chosen so that github.com/tidwall/gjson reads
// it the same way; characters with a special meaning in gjson are excluded.
var fieldPath = regexp.MustCompile(`^([A-Za-z0-9_/-]|\\\.)+(\.([A-Za-z0-9_/-]|\\\.)+)*$`)

// IsPath reports whether path is that of a field: keys with dots between them, as in spec.nodeName.
// Keys consist of ASCII letters, digits, '-', '_', '/' and dots that are escaped with a backslash, as
// in metadata.annotations.example\.com/owner.
func IsPath(path string) bool { return len(path) <= maxPath && fieldPath.MatchString(path) }

// DropHeader is the header of a request for objects, one for each path of a [Prune], that the client
// drops from them. An agent leaves these fields out; a kube-apiserver does not know the header.
const DropHeader = "Snapcache-Drop"

// Prune is the transform of a collection: the field paths dropped from each object before it is
// stored. A path is names joined by dots; a dot inside a name is escaped with a backslash. The zero
// value drops nothing.
type Prune struct {
	paths []string
	steps [][]step // the paths in protobuf, see For
}

// NewPrune returns the transform that drops paths.
func NewPrune(paths ...string) Prune {
	paths = slices.Clone(paths)
	slices.Sort(paths)
	return Prune{paths: slices.Compact(paths)}
}

// ID identifies the transform. It is part of a collection's identity: a resourceVersion that was
// stored under one transform has no meaning under another.
func (p Prune) ID() string {
	if len(p.paths) == 0 {
		return ""
	}
	return "drop:" + strings.Join(p.paths, ",")
}

// ParsePrune returns the transform of an [Prune.ID].
func ParsePrune(id string) Prune {
	paths, ok := strings.CutPrefix(id, "drop:")
	if !ok {
		return Prune{}
	}
	return NewPrune(strings.Split(paths, ",")...)
}

// Paths returns the paths, in order. They are not to be changed.
func (p Prune) Paths() []string { return p.paths }

// None reports whether the transform drops nothing.
func (p Prune) None() bool { return len(p.paths) == 0 }

// Append appends raw without the pruned paths to dst. raw must be valid JSON, or protobuf of the type
// that [Prune.For] got; it is not changed.
func (p Prune) Append(dst, raw []byte) ([]byte, error) {
	if IsProtobuf(raw) {
		return p.appendProtobuf(dst, raw)
	}
	begin := len(dst)
	dst = append(dst, raw...)
	for _, path := range p.paths {
		from, to, ok := member(dst[begin:], path)
		if ok {
			dst = slices.Delete(dst, begin+from, begin+to)
			continue
		}
		rest, err := sjson.DeleteBytes(dst[begin:], path)
		if err != nil {
			return nil, fmt.Errorf("drop %s: %w", path, err)
		}
		dst = append(dst[:begin], rest...)
	}
	return dst, nil
}

// member returns the range of raw that holds the member at path: its name, its value and one comma.
// ok is false if path has more than plain names, or raw is not spaced as servers write it; then the
// caller uses sjson instead. This saves a copy of nearly every object.
func member(raw []byte, path string) (from, to int, ok bool) {
	for _, c := range []byte(path) {
		if c != '.' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return 0, 0, false
		}
	}
	found := gjson.Get(text(raw), path)
	if !found.Exists() {
		return 0, 0, true
	}
	name := path[strings.LastIndexByte(path, '.')+1:]
	from, to = found.Index-len(name)-len(`"":`), found.Index+len(found.Raw)
	if from < 1 || string(raw[from:found.Index]) != `"`+name+`":` {
		return 0, 0, false
	}
	switch before, after := raw[from-1], raw[to]; {
	case before == ',':
		return from - 1, to, true
	case before == '{' && after == ',':
		return from, to + 1, true
	default:
		return from, to, before == '{' && after == '}'
	}
}

// WithType returns raw with apiVersion and kind, if they are missing, added at the front. Servers
// omit them from the items of a built-in resource's list.
func WithType(raw []byte, apiVersion, kind string) []byte {
	raw = bytes.TrimSpace(raw)
	hasVersion, hasKind := false, false
	gjson.Parse(text(raw)).ForEach(func(key, _ gjson.Result) bool {
		switch key.Str {
		case "apiVersion":
			hasVersion = true
		case "kind":
			hasKind = true
		case "metadata":
			// Both encoders of the server (struct order for built-in types, sorted
			// keys for custom resources) put the type before the metadata.
			return false
		}
		return !(hasVersion && hasKind)
	})
	if hasVersion && hasKind || len(raw) < 2 || raw[0] != '{' {
		return raw
	}
	out := make([]byte, 0, len(raw)+len(apiVersion)+len(kind)+32)
	if !hasKind {
		out = strconv.AppendQuote(append(out, `,"kind":`...), kind)
	}
	if !hasVersion {
		out = strconv.AppendQuote(append(out, `,"apiVersion":`...), apiVersion)
	}
	out[0] = '{'
	if raw = bytes.TrimSpace(raw[1:]); raw[0] != '}' {
		out = append(out, ',')
	}
	return append(out, raw...)
}
