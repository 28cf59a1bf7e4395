package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// arrange puts a command line in the order that urfave/cli reads: it takes options
// only between a command and its first argument, while people who know kubectl
// write them anywhere. It also takes -ojson apart, and makes
// "--index NAME VALUE" "--index NAME --value VALUE", so that VALUE is told from
// the resource. What it does not understand it leaves for urfave/cli to refuse.
func arrange(app *cli.App, args []string) []string {
	if len(args) == 0 {
		return args
	}
	a := arranger{takesValue: valueFlags(app.Commands), commands: app.Commands}
	for rest := args[1:]; len(rest) > 0; {
		rest = a.next(rest)
	}
	if a.unknown {
		// That there is no such command matters more than its options.
		return append(append([]string{args[0]}, a.path...), a.positional...)
	}
	if slices.ContainsFunc(a.flags, isHelp) {
		a.positional = nil // urfave/cli would take them for the names of help topics
	}
	out := append([]string{args[0]}, a.appFlags...)
	out = append(append(out, a.path...), a.flags...)
	if len(a.positional) > 0 && len(a.path) > 0 {
		out = append(out, "--")
	}
	return append(out, a.positional...)
}

type arranger struct {
	takesValue map[string]bool // by name without dashes, of all commands
	commands   []*cli.Command  // that may come next; none after the last
	unknown    bool            // a word was in the place of a command and is none

	appFlags, path, flags, positional []string
}

// next sorts in the first of the words, with those that belong to it, and returns
// the others.
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
		// The value is missing, and nothing may take its place.
		a.flags, a.positional = append(a.flags, word), nil
	default:
		a.flags = append(a.flags, word)
	}
	if name == indexFlag && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		a.flags, rest = append(a.flags, dashed(valueFlag), rest[0]), rest[1:]
	}
	return rest
}

// argument takes a word that is no option: a command, or an argument of one.
func (a *arranger) argument(word string) {
	for _, c := range a.commands {
		if c.HasName(word) {
			a.path, a.commands = append(a.path, word), c.Subcommands
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
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// valueFlags says of every option of the commands whether it takes a value. A name
// means the same kind of option everywhere.
func valueFlags(commands []*cli.Command) map[string]bool {
	takes := map[string]bool{}
	for _, c := range commands {
		for _, f := range c.Flags {
			_, isBool := f.(*cli.BoolFlag)
			for _, name := range f.Names() {
				takes[name] = !isBool
			}
		}
		for name, t := range valueFlags(c.Subcommands) {
			takes[name] = t
		}
	}
	return takes
}
