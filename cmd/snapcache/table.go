package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
)

// tableBlock is how many rows are laid out at once. It limits the memory for a long table; columns
// may shift between blocks.
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

// row adds a row. An empty cell is shown as "-".
func (t *table) row(cells ...string) {
	for i, c := range cells {
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

func humanBytes(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

func plural(n int64, one, many string) string {
	return humanCount(n) + " " + english.PluralWord(int(n), one, many)
}
