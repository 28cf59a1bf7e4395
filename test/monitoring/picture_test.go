package monitoring

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "draw the picture of the dashboard again")

const picture = "../../docs/dashboard.svg"

// TestPicture holds the picture of the dashboard to what the dashboard is: each panel where
// it is, with its title and what it means.
func TestPicture(t *testing.T) {
	var b board
	require.NoError(t, json.Unmarshal([]byte(read(t, boardFile)), &b))
	svg := draw(t, b.Panels)
	if *update {
		require.NoError(t, os.WriteFile(picture, []byte(svg), 0o600))
	}
	drawn, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Equal(t, svg, string(drawn), "draw it again: go test -run TestPicture ./test/monitoring -update")
}

// Of Grafana's grid, in pixels, and of the text in a panel.
const (
	column, line   = 40, 24
	margin         = 8
	letter, height = 66, 15 // a letter in tenths
)

func draw(t *testing.T, panels []panel) string {
	t.Helper()
	rows := 0
	for _, p := range panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif">`+"\n", 24*column, rows*line+margin)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#f4f5f7"/>`+"\n")
	for _, p := range panels {
		x, y, w, h := p.GridPos.X*column, p.GridPos.Y*line, p.GridPos.W*column, p.GridPos.H*line
		text := func(line int, size, style, words string) {
			fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="%s" %s>%s</text>`+"\n", x+2*margin, y+margin+line*height+height, size, style, html.EscapeString(words))
		}
		if p.Type == "row" {
			text(0, "15", `font-weight="bold" fill="#1f2d3d"`, p.Title)
			continue
		}
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#ffffff" stroke="#c5ccd6"/>`+"\n", x+margin/2, y+margin/2, w-margin, h-margin)
		text(0, "13", `font-weight="bold" fill="#1f2d3d"`, p.Title)
		lines := wrap(p.Description, 10*(w-4*margin)/letter)
		require.LessOrEqual(t, (len(lines)+2)*height, h, "%s: what it means does not fit", p.Title)
		for i, words := range lines {
			text(i+1, "12", `fill="#4a5868"`, words)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// wrap breaks a text into lines of so many letters.
func wrap(text string, letters int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > letters {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}
