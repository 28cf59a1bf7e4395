package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// tableBlock is how many rows are laid out at once. It limits the memory for a long table; columns
// may shift between blocks.
const tableBlock = 1000

// table prints rows in columns. If a column's header starts with ">", it is aligned to the right.
type table struct {
	w     *tabwriter.Writer
	head  []string
	right []bool
	rows  [][]string
	begun bool
	err   error // the first one of writing
}

func newTable(w io.Writer, head ...string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	for _, h := range head {
		name, right := strings.CutPrefix(h, ">")
		t.head, t.right = append(t.head, name), append(t.right, right)
	}
	return t
}

// row adds a row. An empty cell is shown as "-".
func (t *table) row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
	if len(t.rows) >= tableBlock {
		_ = t.flush() // in err
	}
}

// flush prints the rows added so far, with the header before the first one. It returns the first
// error of the table.
func (t *table) flush() error {
	if !t.begun {
		t.rows = append([][]string{t.head}, t.rows...)
		t.begun = true
	}
	width := make([]int, len(t.head))
	for _, row := range t.rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, row := range t.rows {
		for i, c := range row {
			if t.right[i] {
				row[i] = strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)) + c
			}
		}
		// Without a tab after the last cell no line ends in spaces.
		_, err := fmt.Fprintln(t.w, strings.Join(row, "\t"))
		t.err = cmp.Or(t.err, err)
	}
	t.rows = t.rows[:0]
	t.err = cmp.Or(t.err, t.w.Flush())
	return t.err
}

func humanCount(n int64) string { return humanize.Comma(n) }

func humanBytes(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

func plural(n int64, one, many string) string {
	if n == 1 {
		return humanCount(n) + " " + one
	}
	return humanCount(n) + " " + many
}
