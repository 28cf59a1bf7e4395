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

// Write writes side-by-side.md with its charts and the raw figures into a folder, and its
// summary into the folder's performance.md, where that is there. The pages are last, so that they
// are never newer than what they show.
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
	page := filepath.Join(dir, "performance.md")
	text, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	whole, err := withSummary(string(text), Summary(run, names))
	if err != nil {
		return fmt.Errorf("write the report: %s: %w", page, err)
	}
	return result.WriteFile(page, []byte(whole))
}

// What is between these two lines of performance.md is a run's.
const (
	summaryBegin = "<!-- make bench writes from here -->\n"
	summaryEnd   = "<!-- to here -->\n"
)

// withSummary returns page with another summary in it.
func withSummary(page, summary string) (string, error) {
	before, rest, ok := strings.Cut(page, summaryBegin)
	_, after, ended := strings.Cut(rest, summaryEnd)
	if !ok || !ended {
		return "", fmt.Errorf("there is no place for the summary, between the lines %q and %q", strings.TrimSpace(summaryBegin), strings.TrimSpace(summaryEnd))
	}
	return before + summaryBegin + summary + summaryEnd + after, nil
}
