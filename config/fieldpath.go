package config

import (
	"fmt"

	"github.com/snapcache/snapcache/object"
)

// checkFieldPath returns an error if path is not one of [object.IsPath].
func checkFieldPath(path string) error {
	if !object.IsPath(path) {
		return fmt.Errorf(`%s is not the path of a field, as in spec.nodeName or metadata.annotations.example\.com/owner: `+
			`give keys of letters, digits, "-", "_" and "/" with single dots between them`, quote(path))
	}
	return nil
}
