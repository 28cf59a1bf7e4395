package config

import (
	"fmt"
	"slices"
	"strings"
)

// maxFieldPath limits a path, in bytes: the key of a label or annotation may have 317.
const maxFieldPath = 512

// ParseFieldPath splits the path of a field into the keys that lead to it: spec.nodeName has two. A
// dot inside a key is escaped with a backslash: metadata.annotations.example\.com/owner has three.
// Keys consist of ASCII letters, digits, '-', '_' and '/'.
//
// The form is chosen so that github.com/tidwall/gjson reads it the same way; characters with a
// special meaning in gjson are excluded.
func ParseFieldPath(path string) ([]string, error) {
	if len(path) > maxFieldPath {
		return nil, fmt.Errorf("the path has %d bytes; %d are allowed", len(path), maxFieldPath)
	}
	var keys []string
	var key strings.Builder
	end := func() error {
		if key.Len() == 0 {
			return fmt.Errorf("%s has an empty part; a path is keys with single dots between them, as in spec.nodeName", quote(path))
		}
		keys = append(keys, key.String())
		key.Reset()
		return nil
	}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '.':
			if err := end(); err != nil {
				return nil, err
			}
		case c == '\\':
			if i++; i == len(path) || path[i] != '.' {
				return nil, fmt.Errorf(`%s has a backslash that isn't in front of a dot; it is only for a dot inside a key, as in metadata.annotations.example\.com/owner`, quote(path))
			}
			key.WriteByte('.')
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '/':
			key.WriteByte(c)
		default:
			r := []rune(path[i:])[0]
			return nil, fmt.Errorf(`the character %q is not allowed in the path %s; a path is keys of letters, digits, "-", "_" and "/" with dots between them`, r, quote(path))
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return keys, nil
}

// within reports whether the field at path is part of the field at parent, or is that field.
func within(path, parent []string) bool {
	return len(path) >= len(parent) && slices.Equal(path[:len(parent)], parent)
}
