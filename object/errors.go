package object

import "errors"

var (
	// ErrInvalid says that bytes are not one valid JSON object.
	ErrInvalid = errors.New("not a valid JSON object")

	// ErrNoMetadata says that a JSON object has no metadata with a name, so it
	// can't be a cached Kubernetes object.
	ErrNoMetadata = errors.New("object has no metadata.name")
)
