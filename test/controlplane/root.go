package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// sourceDir is this package's folder below the root of the repository.
var sourceDir = filepath.Join("test", "controlplane")

// Root returns the root folder of the repository: the nearest folder above this
// source file, or else above the working directory, that has
// test/controlplane/go.mod.
func Root() (string, error) {
	var starts []string
	// With -trimpath the caller's file is not a path of the machine; the walk then finds no
	// module, and the working directory is used.
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, sourceDir, "go.mod")); err == nil {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("%w above %q", ErrNoSource, starts)
}
