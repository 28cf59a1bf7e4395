package informer_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests that docs/library.md names exist.
func TestDocsNameTests(t *testing.T) {
	var sources strings.Builder
	for _, dir := range []string{".", "../deltafifo", "../reflector", "../test/library"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			sources.Write(b)
		}
	}
	page, err := os.ReadFile("../docs/library.md")
	require.NoError(t, err)
	names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(page), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Contains(t, sources.String(), "func "+name+"(", "docs/library.md names a test that is not there")
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "|") {
			require.NotRegexp(t, `\|\s*\|\s*$`, line, "a row of docs/library.md is empty")
		}
	}
}
