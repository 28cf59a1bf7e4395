package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/localapi"
)

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// output prints v as JSON if the command line asks for it, otherwise as text does.
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
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	if len(lines) == 0 {
		return nil
	}
	return writeStrings(w, "\n", strings.Join(lines, "\n"), "\n")
}

func storeLine(s localapi.StoreStatus) string {
	parts := []string{"store: " + s.Type}
	if s.Path != "" {
		parts = append(parts, s.Path)
	}
	if s.FileBytes > 0 {
		parts = append(parts, humanBytes(s.FileBytes))
	}
	if s.EncryptionKey != "" {
		parts = append(parts, "encrypted with key "+s.EncryptionKey)
	}
	if s.EncryptionDue {
		parts = append(parts, "being rewritten under the configured key")
	}
	if s.Verdict != "" {
		parts = append(parts, s.Verdict)
	}
	return strings.Join(parts, ", ")
}

// snapshotLine describes the newest snapshot. It is empty if there is none.
func snapshotLine(s *localapi.SnapshotStatus) string {
	if s == nil || s.Name == "" {
		return ""
	}
	return fmt.Sprintf("snapshot: %s, %s, %s old", s.Name, humanBytes(s.Bytes), localapi.Age(max(0, time.Since(s.Newest).Seconds())))
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

// historySince returns the beginning of a collection's history: resourceVersion and time.
func historySince(c localapi.Collection) string {
	h := c.HistorySince
	if h.RV == "" {
		return ""
	}
	return fmt.Sprintf("%s (%s)", h.RV, h.Time.Local().Format(time.DateTime))
}
