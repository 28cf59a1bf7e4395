package house_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// habit is a turn of phrase that readers stumble over.
type habit struct {
	name  string
	limit float64 // per 1,000 words, that every text may have
	count func(text string) int
}

var habits = []habit{
	{"where", 1, conditionalWheres},                        // "where the file is corrupt", for if or when
	{"say", 0.3, matches(`says?|said|tells?|told`)},        // a program returns, reports, means
	{"anew", 0.2, matches(`anew|whoever|nobody|somebody`)}, // again, the caller, no one, a reader
}

// minIfs is the least number of "if" per 1,000 words of all comments, and of all pages: a text that has
// few of them has other words for its conditions.
const minIfs = 5

var (
	countIfs = matches(`if`)
	tableRow = regexp.MustCompile(`(?m)^\|.*$`) // has facts, and not the conditions that sentences have

	// A condition goes on with a clause, a question about a place does not always.
	whereClause = regexp.MustCompile(`(?i)(?:([a-z]+)\s+)?\bwhere\s+(it|there|that|this|these|those|they|he|she|we|you|one|two|nothing|none|no|not|a|an|the|its|their|all|any|each|every|some|both|neither|either|only|more|many|most|few|something|anything|someone|what|is|are|was|has|had|needed|possible|known|allowed|given|asked|set)\b`)
	// After these words it is a place.
	placeWords = []string{"place", "places", "from", "to", "position", "offset", "directory", "point", "knows", "shows", "out", "matter"}
)

// conditionalWheres counts the uses of "where" that look like those of "if" and "when".
func conditionalWheres(text string) int {
	n := 0
	for _, m := range whereClause.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(placeWords, strings.ToLower(m[1])) {
			n++
		}
	}
	return n
}

func matches(words string) func(string) int {
	re := regexp.MustCompile(`(?i)\b(` + words + `)\b`)
	return func(text string) int { return len(re.FindAllStringIndex(text, -1)) }
}

// TestLanguage holds the comments of each package and each page of the documentation to the limits
// of [habits], and all comments and all pages to [minIfs]. With -v it prints the rates of every text.
func TestLanguage(t *testing.T) {
	texts := readTexts(t)
	var rates strings.Builder
	sentences := map[string]string{} // all comments, and all pages without their tables
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		kind, text := "comments", texts[name]
		if path.Ext(name) == ".md" {
			kind, text = "pages", tableRow.ReplaceAllString(text, "")
		}
		sentences[kind] += text + "\n"
		words := len(strings.Fields(texts[name]))
		fmt.Fprintf(&rates, "%-34s %6d words, per 1,000: if %4.1f", name, words, ifRate(text))
		for _, h := range habits {
			n, limit := h.count(texts[name]), int(math.Ceil(h.limit*float64(words)/1000))
			fmt.Fprintf(&rates, "  %s %4.1f", h.name, float64(n)/float64(max(words, 1))*1000)
			if n > limit {
				t.Errorf("%s: %d uses of %q, %d are allowed; see Language in CONTRIBUTING.md", name, n, h.name, limit)
			}
		}
		rates.WriteByte('\n')
	}
	t.Logf("rates:\n%s", &rates)
	for kind, text := range sentences {
		require.GreaterOrEqual(t, ifRate(text), float64(minIfs), "%q in 1,000 words of all %s; see Language in CONTRIBUTING.md", "if", kind)
	}
}

// ifRate returns the number of "if" per 1,000 words.
func ifRate(text string) float64 {
	return float64(countIfs(text)) / float64(max(len(strings.Fields(text)), 1)) * 1000
}

// readTexts returns the comments of the Go files by directory, and the prose of the documentation
// by file.
func readTexts(t *testing.T) map[string]string {
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch base := d.Name(); {
		case d.IsDir() && name != "." && (base[0] == '.' || base == "testdata" || name == "bin"):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		case path.Ext(name) == ".go":
			comments, err := comments(file)
			if err != nil {
				return err
			}
			texts[path.Dir(name)] += comments
		case path.Ext(name) == ".md" && (name == "README.md" || name == "CONTRIBUTING.md" || strings.HasPrefix(name, "docs/")):
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			texts[name] = prose(string(raw))
		}
		return nil
	})
	require.NoError(t, err)
	return texts
}

// comments returns the comments of a Go file, without the directives.
func comments(file string) (string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, group := range parsed.Comments {
		text.WriteString(group.Text())
		text.WriteByte('\n')
	}
	return text.String(), nil
}

var code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

// prose returns a page without its code.
func prose(page string) string { return code.ReplaceAllString(page, " code ") }

func TestConditionalWheres(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int
	}{
		{"An error where the file is corrupt.", 1},
		{"An error where\nit is corrupt, and where there is none.", 2},
		{"The directory where the file is.", 0},
		{"It goes on from where it was.", 0},
		{"Wherever it is, it stays.", 0},
		{"The offset, where known.", 1},
	} {
		require.Equal(t, tc.want, conditionalWheres(tc.text), tc.text)
	}
}
