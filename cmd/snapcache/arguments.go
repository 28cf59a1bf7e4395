package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// arrange reorders a command line for urfave/cli, which accepts options only between a command and
// its first argument; kubectl users write them anywhere. It also splits -ojson, and rewrites
// "--index NAME VALUE" as "--index NAME --value VALUE", so that VALUE is not taken for the
// resource. It leaves anything else for urfave/cli to refuse.
func arrange(app *cli.App, args []string) []string {
	if len(args) == 0 {
		return args
	}
	a := newArranger(app, args[1:])
	if a.unknown {
		// A wrong command matters more than wrong options.
		return append(append([]string{args[0]}, a.path...), a.positional...)
	}
	if slices.ContainsFunc(a.flags, isHelp) {
		a.positional = nil // urfave/cli would take them for help topics
	}
	out := append([]string{args[0]}, a.appFlags...)
	out = append(append(out, a.path...), a.flags...)
	if len(a.positional) > 0 && len(a.path) > 0 {
		out = append(out, "--")
	}
	return append(out, a.positional...)
}

type arranger struct {
	takesValue map[string]bool // options of all commands, without dashes
	command    *cli.Command    // the innermost command so far, nil for none
	commands   []*cli.Command  // the commands that may come next; empty after the last
	unknown    bool            // a word in the place of a command is no command

	appFlags, path, flags, positional []string
}

// newArranger sorts the words of a command line after the program's name.
func newArranger(app *cli.App, words []string) *arranger {
	a := &arranger{takesValue: valueFlags(app.Commands), commands: app.Commands}
	for len(words) > 0 {
		words = a.next(words)
	}
	return a
}

// next sorts the first word, with its value if it is an option that takes one, and returns the
// remaining words.
func (a *arranger) next(words []string) []string {
	word, rest := words[0], words[1:]
	switch {
	case word == "--":
		a.positional = append(a.positional, rest...)
		return nil
	case len(word) < 2 || word[0] != '-':
		a.argument(word)
		return rest
	}
	name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	takes, known := a.takesValue[name]
	if short := name[:min(1, len(name))]; !known && !strings.HasPrefix(word, "--") && a.takesValue[short] {
		// -ojson
		name, value, hasValue, takes, known = short, word[2:], true, true, true
	}
	switch {
	case !known && len(a.path) == 0:
		a.appFlags = append(a.appFlags, word)
		return rest
	case takes && hasValue:
		a.flags = append(a.flags, dashed(name), value)
	case takes && len(rest) > 0:
		a.flags, rest = append(a.flags, word, rest[0]), rest[1:]
	case takes:
		// The value is missing, and no other word may take its place.
		a.flags, a.positional = append(a.flags, word), nil
	default:
		a.flags = append(a.flags, word)
	}
	if name == indexFlag && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		a.flags, rest = append(a.flags, dashed(valueFlag), rest[0]), rest[1:]
	}
	return rest
}

func (a *arranger) argument(word string) {
	for _, c := range a.commands {
		if c.HasName(word) {
			a.path, a.command, a.commands = append(a.path, word), c, c.Subcommands
			return
		}
	}
	a.unknown = a.unknown || len(a.commands) > 0
	a.commands = nil
	a.positional = append(a.positional, word)
}

func isHelp(word string) bool {
	name := strings.TrimLeft(word, "-")
	return name != word && slices.Contains(cli.HelpFlag.Names(), name)
}

func dashed(name string) string {
	return "--"[:min(2, len(name))] + name
}

// valueFlags returns for every option, of any command, whether it takes a value.
func valueFlags(commands []*cli.Command) map[string]bool {
	takes := map[string]bool{}
	for _, c := range commands {
		for _, f := range c.Flags {
			_, isBool := f.(*cli.BoolFlag)
			for _, name := range f.Names() {
				takes[name] = !isBool
			}
		}
		maps.Copy(takes, valueFlags(c.Subcommands))
	}
	return takes
}
