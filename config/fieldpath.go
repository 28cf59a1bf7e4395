package config

import (
	"fmt"
	"regexp"
)

// maxFieldPath limits a path, in bytes: the key of a label or annotation may have 317.
const maxFieldPath = 512

// fieldPath matches the path of a field. The form is chosen so that github.com/tidwall/gjson reads
// it the same way; characters with a special meaning in gjson are excluded.
var fieldPath = regexp.MustCompile(`^([A-Za-z0-9_/-]|\\\.)+(\.([A-Za-z0-9_/-]|\\\.)+)*$`)

// checkFieldPath returns an error if path is not the path of a field: keys with dots between them,
// as in spec.nodeName. Keys consist of ASCII letters, digits, '-', '_', '/' and dots that are
// escaped with a backslash, as in metadata.annotations.example\.com/owner.
func checkFieldPath(path string) error {
	if len(path) > maxFieldPath || !fieldPath.MatchString(path) {
		return fmt.Errorf(`%s is not the path of a field, as in spec.nodeName or metadata.annotations.example\.com/owner: `+
			`give keys of letters, digits, "-", "_" and "/" with single dots between them`, quote(path))
	}
	return nil
}
