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

// standIns are words in place of a noun, which a text needs now and then. The limits are for the whole
// product: its comments without the tests', and its pages. Each text may have [perText] times as many.
var standIns = []habit{
	{"what", 0.5, whatClauses},                     // "what is kept of the cluster", for its keys
	{"those", 0.7, matches(`those`)},               // "those of the node", for the node's pods
	{"that of", 0.3, matches(`(that|those)\s+of`)}, // "the name is that of the file", for the file's name
}

const perText = 3

// generated are the pages that a benchmark writes. They have few of the sentences that a person can change.
var generated = []string{"docs/bench/api.md", "docs/bench/fleet.md", "docs/bench/fleets.md", "docs/bench/library.md",
	"docs/bench/side-by-side.md"}

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

// whats are followed by a clause, unless the next word is one of questionWords.
var (
	whats         = regexp.MustCompile(`(?i)\bwhat\s+([a-z]+)`)
	questionWords = []string{"to", "if", "about", "for", "kind"}
)

// whatClauses counts the clauses with "what" that stand for a noun: not headings, nor questions.
func whatClauses(text string) int {
	n := 0
	for _, m := range whats.FindAllStringSubmatchIndex(text, -1) {
		before, next, after := text[:m[0]], text[m[2]:m[3]], text[m[1]:]
		heading := strings.HasPrefix(before[strings.LastIndexByte(before, '\n')+1:], "#")
		end := strings.IndexAny(after, ".?!:;")
		question := end >= 0 && after[end] == '?'
		if !heading && !question && !slices.Contains(questionWords, strings.ToLower(next)) {
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
	texts := readTexts(t, true)
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
			fmt.Fprintf(&rates, "  %s %4.1f", h.name, perThousand(n, words))
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

// TestStandIns holds the product to the limits of [standIns]. With -v it prints the rates of every text.
func TestStandIns(t *testing.T) {
	texts := readTexts(t, false)
	words, counts := 0, make([]int, len(standIns))
	var rates strings.Builder
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		own := len(strings.Fields(texts[name]))
		words += own
		fmt.Fprintf(&rates, "%-34s %6d words, per 1,000:", name, own)
		for i, h := range standIns {
			n := h.count(texts[name])
			counts[i] += n
			fmt.Fprintf(&rates, "  %s %d, %.1f", h.name, n, perThousand(n, own))
			if most := int(math.Ceil(perText * h.limit * float64(own) / 1000)); n > most && !slices.Contains(generated, name) {
				t.Errorf("%s: %d uses of %q, %d are allowed; see Language in CONTRIBUTING.md", name, n, h.name, most)
			}
		}
		rates.WriteByte('\n')
	}
	t.Logf("rates:\n%s", &rates)
	for i, h := range standIns {
		rate := perThousand(counts[i], words)
		t.Logf("%q: %d in %d words, %.2f per 1,000", h.name, counts[i], words, rate)
		require.LessOrEqual(t, rate, h.limit, "%q in 1,000 words of the product; see Language in CONTRIBUTING.md", h.name)
	}
}

func perThousand(n, words int) float64 { return float64(n) / float64(max(words, 1)) * 1000 }

// ifRate returns the number of "if" per 1,000 words.
func ifRate(text string) float64 {
	return perThousand(countIfs(text), len(strings.Fields(text)))
}

// readTexts returns the comments of the Go files by directory, with or without the tests', and the
// prose of the documentation by file.
func readTexts(t *testing.T, tests bool) map[string]string {
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
		case strings.HasSuffix(name, "_test.go") && !tests:
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

func TestWhatClauses(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int
	}{
		{"It keeps what is left.", 1},
		{"What\nwas refused, and what `code` returns.", 2},
		{"What is left? It is what it is.", 1},
		{"# What it costs\n\nNothing.", 0},
		{"An error says what to do, and so what.", 0},
		{"Somewhat is here.", 0},
	} {
		require.Equal(t, tc.want, whatClauses(prose(tc.text)), tc.text)
	}
}
