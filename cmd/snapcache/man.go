package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

const manSection = 1

// manTemplate is the Markdown template of one page. Its App is one command.
const manTemplate = `% {{ .App.Name }} {{ .SectionNum }} "" "snapcache {{ .App.Version }}" "snapcache"
# NAME

{{ .App.Name }} - {{ .App.Usage }}

# SYNOPSIS

{{ range $line := .App.Metadata.synopsis }}    {{ $line }}
{{ end }}
# DESCRIPTION

{{ .App.Metadata.description }}
{{ with .App.Metadata.commands }}
# COMMANDS
{{ range . }}
**{{ .Name }}**
: {{ .Usage }}
{{ end }}{{ end }}{{ with .GlobalArgs }}
# OPTIONS
{{ range . }}
{{ . }}{{ end }}
{{ end }}
# SEE ALSO

{{ .App.Metadata.others }}
`

// manCommand is for packagers, so the help does not list it.
func manCommand() *cli.Command {
	return &cli.Command{
		Name:      "man",
		Usage:     "write the manual pages",
		UsageText: "snapcache man DIR",
		Description: `Writes the manual page of each command to a directory.

   snapcache man /usr/local/share/man/man1`,
		Hidden: true,
		Action: atMost(1, func(c *cli.Context) error {
			if !c.Args().Present() {
				return usagef("give the directory for the manual pages")
			}
			return writeManPages(c.App, c.Args().First())
		}),
	}
}

func writeManPages(app *cli.App, dir string) error {
	cli.MarkdownDocTemplate = manTemplate
	pages := []*cli.Command{{
		Name: app.Name, HelpName: app.Name, Usage: app.Usage, UsageText: app.UsageText, Description: app.Description,
		Flags: app.Flags, Subcommands: shown(app.Commands),
	}}
	for i := 0; i < len(pages); i++ {
		for _, sub := range shown(pages[i].Subcommands) {
			copied := *sub
			copied.HelpName = pages[i].HelpName + "-" + sub.Name
			pages = append(pages, &copied)
		}
	}
	for _, page := range pages {
		text, err := manPage(app, page, pages)
		if err != nil {
			return fmt.Errorf("manual page of %s: %w", page.HelpName, err)
		}
		// Readable for all users.
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.%d", page.HelpName, manSection)), []byte(text), 0o644); err != nil { //nolint:gosec // a manual is public
			return err
		}
	}
	return nil
}

func manPage(app *cli.App, page *cli.Command, pages []*cli.Command) (string, error) {
	var others []string
	for _, other := range pages {
		if other.HelpName == above(page) || above(other) == page.HelpName {
			others = append(others, fmt.Sprintf("**%s**(%d)", other.HelpName, manSection))
		}
	}
	return (&cli.App{
		Name: page.HelpName, Usage: page.Usage, Version: app.Version, Flags: page.Flags,
		Metadata: map[string]any{
			"synopsis":    strings.Split(page.UsageText, "\n"),
			"description": markdown(page.Description),
			"commands":    shown(page.Subcommands),
			"others":      strings.Join(others, ", "),
		},
	}).ToManWithSection(manSection)
}

// above returns the name of the page that lists a command; empty for the program itself.
func above(page *cli.Command) string {
	return page.HelpName[:max(0, strings.LastIndex(page.HelpName, "-"))]
}

// markdown makes indented lines literal: with four spaces, and an empty line before them.
func markdown(description string) string {
	var b strings.Builder
	literal := true
	for line := range strings.Lines(description) {
		indented := strings.HasPrefix(line, "  ")
		if indented && !literal {
			b.WriteString("\n")
		}
		if indented {
			b.WriteString("   ")
		}
		b.WriteString(line)
		literal = indented || line == "\n"
	}
	return b.String()
}

func shown(commands []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(commands), func(c *cli.Command) bool { return c.Hidden || c.Name == "help" })
}
