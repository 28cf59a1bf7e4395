package informer_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests that the pages of the library name exist.
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
	for _, name := range []string{"library.md", "library-reflector.md"} {
		page, err := os.ReadFile(filepath.Join("../docs", name))
		require.NoError(t, err)
		tests := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(page), -1)
		require.NotEmpty(t, tests)
		for _, test := range tests {
			require.Contains(t, sources.String(), "func "+test+"(", name+" names a test that does not exist")
		}
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "|") {
				require.NotRegexp(t, `\|\s*\|\s*$`, line, "a row of "+name+" is empty")
			}
		}
	}
}
