package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapcache/snapcache/bench/result"
)

// Write writes side-by-side.md with its charts and the raw figures to a directory, and parts of it
// to the directory's performance.md and scale.md, if they exist. The pages come last, so that they
// are never newer than their content.
func Write(run *result.Run, dir string) error {
	charts, err := Charts(run)
	if err != nil {
		return err
	}
	const folder = "side-by-side"
	if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil { //nolint:gosec // documentation
		return fmt.Errorf("write the report: %w", err)
	}
	var names []string
	for _, c := range charts {
		name := folder + "/" + c.Name
		if err := result.WriteFile(filepath.Join(dir, name), c.SVG); err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := result.Write(filepath.Join(dir, "side-by-side.json"), run); err != nil {
		return err
	}
	if err := result.WriteFile(filepath.Join(dir, "side-by-side.md"), []byte(Markdown(run, names))); err != nil {
		return err
	}
	if err := fill(filepath.Join(dir, "performance.md"), Summary(run, names)); err != nil {
		return err
	}
	return fill(filepath.Join(dir, "scale.md"), Scale(run))
}

// fill replaces a run's part of a page that people maintain, if the page exists.
func fill(page, part string) error {
	text, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	before, rest, begins := strings.Cut(string(text), partBegin)
	_, after, ends := strings.Cut(rest, partEnd)
	if !begins || !ends {
		return fmt.Errorf("write the report: %s has no place for it, between the lines %q and %q", page, strings.TrimSpace(partBegin), strings.TrimSpace(partEnd))
	}
	return result.WriteFile(page, []byte(before+partBegin+part+partEnd+after))
}

// A run replaces what is between these two lines of a page.
const (
	partBegin = "<!-- make bench writes from here -->\n"
	partEnd   = "<!-- to here -->\n"
)
