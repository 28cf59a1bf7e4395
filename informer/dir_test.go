package informer_test

import (
	"os"

	"pgregory.net/rapid"
)

// rapidDir returns a directory for one run of a property.
func rapidDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "informer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
