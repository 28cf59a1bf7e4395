package object

import "errors"

var (
	// ErrInvalid means that bytes are not one valid JSON object.
	ErrInvalid = errors.New("not a valid JSON object")

	// ErrNoMetadata means that a JSON object has no metadata with a name, so it can't be a cached
	// Kubernetes object.
	ErrNoMetadata = errors.New("object has no metadata.name")
)
