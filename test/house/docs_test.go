package house_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsNameTests checks that the tests that the docs name exist, and that no row of the tables of
// differences from client-go lacks its test.
func TestDocsNameTests(t *testing.T) {
	tests := map[string]bool{}
	pages := map[string]string{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "dist"):
			return filepath.SkipDir
		case strings.HasSuffix(name, "_test.go"):
			b, err := os.ReadFile(path)
			for _, m := range declared.FindAllSubmatch(b, -1) {
				tests[string(m[1])] = true
			}
			return err
		case strings.HasSuffix(name, ".md") && name != "CHANGELOG.md":
			b, err := os.ReadFile(path)
			pages[path] = string(b)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	named := regexp.MustCompile(`(?:^|[^\w^])((?:Test|Fuzz|Benchmark)[A-Z]\w+)\b[^*…]`)
	require.Contains(t, pages, filepath.Join(root, "docs", "library.md"))
	for path, page := range pages {
		for _, m := range named.FindAllStringSubmatch(page, -1) {
			require.True(t, tests[m[1]], "%s names %s, which does not exist", path, m[1])
		}
		if !strings.HasPrefix(filepath.Base(path), "library") {
			continue
		}
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "|") {
				require.NotRegexp(t, `\|\s*\|\s*$`, line, "a row of %s is empty", path)
			}
		}
	}
}

// TestDocsNamePackages checks that the table of packages in docs/architecture.md has each package of
// the product, and that each file that it names exists.
func TestDocsNamePackages(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	require.NoError(t, err)
	named := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9/-]+)` \\|.*\\| (`.*`) \\|$").FindAllStringSubmatch(string(page), -1) {
		named[row[1]] = true
		for file := range strings.SplitSeq(row[2], ", ") {
			require.FileExists(t, filepath.Join(root, row[1], strings.Trim(file, "`")))
		}
	}
	for pkg := range strings.FieldsSeq(listPackages(t, "{{.ImportPath}}")) {
		dir := strings.TrimPrefix(pkg, module+"/")
		if top, _, _ := strings.Cut(dir, "/"); slices.Contains(notProduct, top) {
			continue
		}
		require.True(t, named[dir], "docs/architecture.md lacks the package %s", dir)
	}
}

// TestDocsNameTargets checks that each target of make that a page names exists, and that README.md names
// the two with which a newcomer begins: the main job, and the tests.
func TestDocsNameTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	readme := filepath.Join(root, "README.md")
	named := regexp.MustCompile("(?m)(?:`|^    )make ([a-z0-9-]+)")
	for _, path := range append(pages, readme, filepath.Join(root, "CONTRIBUTING.md")) {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		targets := map[string]bool{}
		for _, m := range named.FindAllStringSubmatch(string(page), -1) {
			targets[m[1]] = true
			require.Regexp(t, `(?m)^(?:[a-z0-9-]+ )*`+m[1]+`(?: [a-z0-9-]+)*:`, string(makefile), "%s names make %s", path, m[1])
		}
		if path == readme {
			require.Subset(t, targets, map[string]bool{"demo": true, "test": true}, "README.md")
		}
	}
}
