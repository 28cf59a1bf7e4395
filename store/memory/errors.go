package memory

import "errors"

var (
	// errEmptyKey says that a change has no key.
	errEmptyKey = errors.New("change without a key")

	// errEnded says that a replacement was committed or aborted before.
	errEnded = errors.New("replacement has ended")
)
