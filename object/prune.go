package object

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"
	"google.golang.org/protobuf/encoding/protowire"
)

// ManagedFields is the path that is pruned unless the configuration keeps it. The field is half the
// bytes of a typical pod, and readers of a cache do not need it.
const ManagedFields = "metadata.managedFields"

// maxPath limits a path, in bytes: the key of a label or annotation may have 317.
const maxPath = 512

// fieldPath matches the path of a field. The form is chosen so that github.com/tidwall/gjson reads
// it the same way; characters with a special meaning in gjson are excluded.
var fieldPath = regexp.MustCompile(`^([A-Za-z0-9_/-]|\\\.)+(\.([A-Za-z0-9_/-]|\\\.)+)*$`)

// IsPath reports whether path can name a field: keys with dots between them, as in spec.nodeName.
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

// step is a part of a path in protobuf: a field of a message or, if number is 0, an entry of a map.
type step struct {
	number protowire.Number
	key    string
}

// For returns p with its paths also for the protobuf of objects like example, a pointer to a Go type
// of the Kubernetes API. The type has the field numbers. It fails if a path leads to no field of the
// type, or into a list.
func (p Prune) For(example any) (Prune, error) {
	typ := reflect.TypeOf(example).Elem()
	p.steps = nil
	for _, path := range p.paths {
		steps, err := stepsOf(typ, path)
		if err != nil {
			return Prune{}, fmt.Errorf("drop %s from a %s: %w", path, typ, err)
		}
		p.steps = append(p.steps, steps)
	}
	return p, nil
}

// stepsOf returns a path in the protobuf of a Go type.
func stepsOf(typ reflect.Type, path string) (steps []step, err error) {
	for _, name := range splitPath(path) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch typ.Kind() {
		case reflect.Struct:
			to, field := fieldOf(typ, name)
			if to == nil {
				return nil, fmt.Errorf("there is no field %q", name)
			}
			steps, typ = append(steps, to...), field
		case reflect.Map:
			steps, typ = append(steps, step{key: name}), typ.Elem()
		default:
			return nil, fmt.Errorf("%q is in a %s", name, typ.Kind())
		}
	}
	return steps, nil
}

// fieldOf returns the steps to a field of a struct, by its name in JSON, and its type; nil if there
// is none.
func fieldOf(typ reflect.Type, name string) ([]step, reflect.Type) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		parts := strings.Split(field.Tag.Get("protobuf"), ",") // as in "bytes,1,opt,name=metadata"
		if len(parts) < 2 {
			continue
		}
		n, err := strconv.ParseInt(parts[1], 10, 32)
		if err != nil {
			continue
		}
		to := []step{{number: protowire.Number(n)}}
		json, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if json == name {
			return to, field.Type
		}
		if json == "" && options == "inline" && field.Type.Kind() == reflect.Struct {
			if within, inner := fieldOf(field.Type, name); within != nil {
				return append(to, within...), inner
			}
		}
	}
	return nil, nil
}

// splitPath splits a path at the dots that are not escaped.
func splitPath(path string) []string {
	const dot = "\x00"
	names := strings.Split(strings.ReplaceAll(path, `\.`, dot), ".")
	for i := range names {
		names[i] = strings.ReplaceAll(names[i], dot, ".")
	}
	return names
}

// appendProtobuf is [Prune.Append] for protobuf.
func (p Prune) appendProtobuf(dst, raw []byte) ([]byte, error) {
	if len(p.steps) != len(p.paths) {
		return nil, fmt.Errorf("drop %s: the object is protobuf of an unknown type", strings.Join(p.paths, ", "))
	}
	message := raw[len(protobufPrefix):]
	for _, steps := range p.steps {
		var err error
		if message, err = without(nil, message, append([]step{{number: unknownRaw}}, steps...)); err != nil {
			return nil, err
		}
	}
	return append(append(dst, protobufPrefix...), message...), nil
}

// without appends a message to dst without the field at steps, of which there is at least one.
func without(dst, message []byte, steps []step) ([]byte, error) {
	for len(message) > 0 {
		number, typ, size := protowire.ConsumeField(message)
		if size < 0 {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, protowire.ParseError(size))
		}
		field := message[:size]
		message = message[size:]
		switch {
		case number != steps[0].number:
		case len(steps) == 1:
			continue
		case typ == protowire.BytesType:
			_, _, tag := protowire.ConsumeTag(field)
			value, _ := protowire.ConsumeBytes(field[tag:])
			within := steps[1:]
			if within[0].number == 0 {
				key, err := ProtobufField(value, entryKey)
				if err != nil {
					return nil, err
				}
				if string(key) != within[0].key {
					break
				}
				if len(within) == 1 {
					continue
				}
				within = append([]step{{number: entryValue}}, within[1:]...)
			}
			rest, err := without(nil, value, within)
			if err != nil {
				return nil, err
			}
			dst = protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), rest)
			continue
		}
		dst = append(dst, field...)
	}
	return dst, nil
}
