package objects

import "errors"

// ErrUnknownResource means that this package does not make objects of a resource.
var ErrUnknownResource = errors.New("unknown resource")
