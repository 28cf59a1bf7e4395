package objects

import "errors"

// ErrUnknownResource says that a resource is none that this package knows.
var ErrUnknownResource = errors.New("unknown resource")
