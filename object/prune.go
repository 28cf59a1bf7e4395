package object

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"
)

// ManagedFields is the path that is pruned unless a configuration keeps it: it
// is half of a typical pod's bytes and no cache's reader needs it.
const ManagedFields = "metadata.managedFields"

// Prune is the transform of a collection: the field paths that are dropped from
// each object on its way in. A path is names joined by dots; a dot inside a name
// is escaped with a backslash. The zero value drops nothing.
type Prune struct {
	paths []string
}

// NewPrune returns the transform that drops paths.
func NewPrune(paths ...string) Prune {
	paths = slices.Clone(paths)
	slices.Sort(paths)
	return Prune{paths: slices.Compact(paths)}
}

// ID names the transform. It is part of a collection's identity: a resourceVersion
// that was persisted under one transform has no meaning under another.
func (p Prune) ID() string {
	if len(p.paths) == 0 {
		return ""
	}
	return "drop:" + strings.Join(p.paths, ",")
}

// Apply returns raw without the pruned paths. raw must be valid JSON; it is not
// changed.
func (p Prune) Apply(raw []byte) ([]byte, error) {
	for _, path := range p.paths {
		var err error
		if raw, err = sjson.DeleteBytes(raw, path); err != nil {
			return nil, fmt.Errorf("drop %s: %w", path, err)
		}
	}
	return raw, nil
}

// WithType returns raw with apiVersion and kind put in where they are missing, as
// they are in the items of a list of a built-in resource.
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
	out = append(out, '{')
	if !hasKind {
		out = append(out, `"kind":`...)
		out = strconv.AppendQuote(out, kind)
		out = append(out, ',')
	}
	if !hasVersion {
		out = append(out, `"apiVersion":`...)
		out = strconv.AppendQuote(out, apiVersion)
		out = append(out, ',')
	}
	if rest := bytes.TrimSpace(raw[1:]); rest[0] == '}' {
		return append(out[:len(out)-1], '}')
	}
	return append(out, raw[1:]...)
}
