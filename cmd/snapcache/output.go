package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/localapi"
)

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func output(c *cli.Context, w io.Writer, v any, text func() error) error {
	if c.String(outputFlag) == "json" {
		return writeJSON(w, v)
	}
	return text()
}

func writeStrings(w io.Writer, parts ...string) error {
	for _, p := range parts {
		if _, err := io.WriteString(w, p); err != nil {
			return err
		}
	}
	return nil
}

// writeLines prints the lines that are not empty, after an empty line.
func writeLines(w io.Writer, lines ...string) error {
	if text := joined("\n", lines...); text != "" {
		return writeStrings(w, "\n", text, "\n")
	}
	return nil
}

// joined joins the parts that are not empty.
func joined(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), separator)
}

func storeLine(s localapi.StoreStatus) string {
	size := ""
	if s.FileBytes > 0 {
		size = humanBytes(s.FileBytes)
	}
	return joined(", ", "store: "+s.Type, s.Path, size, s.Encryption(), s.Verdict)
}

// sizes returns the number and the size of a collection's objects, empty without a complete list.
func sizes(c localapi.Collection) (objects, size string) {
	if !c.Synced {
		return "", ""
	}
	return humanCount(c.Objects), humanBytes(c.Bytes)
}

func listed(c localapi.Collection) string {
	if c.LastList.IsZero() {
		return c.ListReason
	}
	return fmt.Sprintf("%s (%s)", c.LastList.Local().Format(time.DateTime), c.ListReason)
}

func historySince(c localapi.Collection) string {
	h := c.HistorySince
	if h.RV == "" {
		return ""
	}
	return fmt.Sprintf("%s (%s)", h.RV, h.Time.Local().Format(time.DateTime))
}

// tableBlock is how many rows are in memory, and laid out, at once. Columns may shift between
// blocks.
const tableBlock = 1000

// table prints rows in columns. If a column's header starts with ">", it is aligned to the right.
type table struct {
	w     io.Writer
	head  []string // nil if it was printed
	right []bool
	rows  [][]string // not printed yet
	err   error      // the first one of writing
}

func newTable(w io.Writer, head ...string) *table {
	t := &table{w: w, head: head, right: make([]bool, len(head))}
	for i, h := range head {
		head[i], t.right[i] = strings.CutPrefix(h, ">")
	}
	return t
}

// row adds a row. An empty cell is shown as "-". Characters that a terminal would act on are escaped:
// names and texts may come from files that others made.
func (t *table) row(cells ...string) {
	for i, c := range cells {
		if strings.ContainsFunc(c, func(r rune) bool { return !unicode.IsPrint(r) }) {
			c = strconv.Quote(c)
			c = c[1 : len(c)-1]
		}
		cells[i] = cmp.Or(c, "-")
	}
	t.rows = append(t.rows, cells)
	if len(t.rows) >= tableBlock {
		_ = t.flush() // in err
	}
}

// flush prints the rows added so far, with the header before the first one. It returns the first
// error of the table.
func (t *table) flush() error {
	if t.head != nil {
		t.rows, t.head = append([][]string{t.head}, t.rows...), nil
	}
	width := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			switch {
			case t.right[i]:
				fmt.Fprintf(&b, "%*s", width[i], c)
			case i < len(row)-1:
				fmt.Fprintf(&b, "%-*s", width[i], c)
			default:
				b.WriteString(c) // no line ends in spaces
			}
			if i < len(row)-1 {
				b.WriteString("  ")
			}
		}
		b.WriteByte('\n')
	}
	t.rows = t.rows[:0]
	t.err = cmp.Or(t.err, writeStrings(t.w, b.String()))
	return t.err
}

func humanCount(n int64) string { return humanize.Comma(n) }

func humanBytes(n int64) string { return localapi.Size(n) }

func plural(n int64, one, many string) string {
	return humanCount(n) + " " + english.PluralWord(int(n), one, many)
}
