package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
)

//go:embed completion
var completionScripts embed.FS

// completionWord ends a command line that a shell's script asks to complete. It is urfave/cli's
// word, but urfave/cli itself completes only options.
const completionWord = "--generate-bash-completion"

// completionTimeout limits how long a shell waits for the names of cached resources.
const completionTimeout = time.Second

func shells() []string { return []string{"bash", "zsh", "fish"} }

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion script for a shell",
		UsageText: "snapcache completion bash|zsh|fish",
		Description: `Prints a script that completes commands, options and the names of cached resources.

   source <(snapcache completion bash)        for this shell
   snapcache completion bash > /etc/bash_completion.d/snapcache
   source <(snapcache completion zsh)         after compinit
   snapcache completion fish > ~/.config/fish/completions/snapcache.fish`,
		Action: atMost(1, func(c *cli.Context) error {
			shell := c.Args().First()
			if !slices.Contains(shells(), shell) {
				return usagef("give a shell: one of %s", strings.Join(shells(), ", "))
			}
			script, err := completionScripts.ReadFile("completion/snapcache." + shell)
			if err != nil {
				return err
			}
			return writeStrings(c.App.Writer, string(script))
		}),
	}
}

// completionRequest returns the words of a command line, of which the last, perhaps empty, is to complete.
func completionRequest(args []string) ([]string, bool) {
	if n := len(args); n >= 3 && args[n-1] == completionWord {
		return args[1 : n-1], true
	}
	return nil, false
}

// complete prints candidates for the last word, one per line. It prints all that are possible; the
// shell filters them by the typed letters. If there are none, the shell offers files.
func complete(app *cli.App, words []string, w io.Writer) {
	last := len(words) - 1
	before := slices.DeleteFunc(slices.Clone(words[:last]), func(s string) bool { return s == "=" }) // bash splits --a=b
	a := newArranger(app, before)
	command, path, arguments := a.command, strings.Join(a.path, " "), len(a.positional)
	flags := app.Flags
	if command != nil {
		flags = command.Flags
	}
	if len(before) > 0 && strings.HasPrefix(before[len(before)-1], "-") {
		name := strings.TrimLeft(before[len(before)-1], "-")
		if a.takesValue[name] && !strings.Contains(name, "=") {
			completeValue(app, command, name, before, w)
			return
		}
	}
	switch {
	case strings.HasPrefix(words[last], "-"):
		for _, f := range flags {
			if v, ok := f.(cli.VisibleFlag); ok && v.IsVisible() {
				candidates(w, dashed(f.Names()[0]))
			}
		}
		candidates(w, "--help")
	case len(a.commands) > 0:
		for _, c := range shown(a.commands) {
			candidates(w, c.Name)
		}
	case path == "completion" && arguments == 0:
		candidates(w, shells()...)
	case path == "snapshot verify" || path == "snapshot restore" && arguments == 0:
		completeSnapshots(app, command, before, w)
	case path == "get" && arguments == 0:
		completeFromCache(app, command, before, w, func(c localapi.Collection) []string {
			return []string{schema.GroupResource{Group: c.Group, Resource: c.Resource}.String()}
		})
	case path == "patch" && arguments == 0:
		for _, names := range workloads {
			candidates(w, names[0]+"/")
		}
	case path == "verify", (path == "dump" || path == "inspect" || path == "changes") && arguments == 0:
		completeFromCache(app, command, before, w, func(c localapi.Collection) []string { return []string{c.ID} })
	}
}

func completeValue(app *cli.App, command *cli.Command, name string, before []string, w io.Writer) {
	switch {
	case command == nil:
	case name == outputFlag || name == "o":
		candidates(w, outputFormats[command.Name]...)
	case name == forFlag:
		candidates(w, components...)
	case name == fromFlag && command.Name != "kubeconfig": // there it is a file
		completeSnapshots(app, command, before[:len(before)-1], w)
	case name == "store":
		candidates(w, string(config.StoreBolt), string(config.StoreMemory))
	case name == indexFlag:
		// The option without its value would not parse.
		completeFromCache(app, command, before[:len(before)-1], w, func(c localapi.Collection) []string {
			return append([]string{store.NamespaceIndex}, c.Indexes...)
		})
	}
}

// completeFromCache prints names from the cache that the words select, none if it can't be read.
func completeFromCache(app *cli.App, command *cli.Command, before []string, w io.Writer, names func(localapi.Collection) []string) {
	completeWith(app, command, before, func(c *cli.Context) error {
		ctx, cancel := context.WithTimeout(c.Context, completionTimeout)
		defer cancel()
		_, status, done, err := openCache(ctx, c)
		if err != nil {
			return err
		}
		defer done()
		var all []string
		for _, x := range status.Collections {
			all = append(all, names(x)...)
		}
		slices.Sort(all)
		candidates(w, slices.Compact(all)...)
		return nil
	})
}

func completeSnapshots(app *cli.App, command *cli.Command, before []string, w io.Writer) {
	completeWith(app, command, before, func(c *cli.Context) error {
		dir, _, err := snapshotDir(c)
		if err != nil {
			return err
		}
		all, err := dir.List()
		for _, s := range all {
			candidates(w, s.Name)
		}
		return err
	})
}

// completeWith runs action with the options that the words select. A shell does not show errors.
func completeWith(app *cli.App, command *cli.Command, before []string, action cli.ActionFunc) {
	command.Action = action
	app.Writer, app.ErrWriter = io.Discard, io.Discard
	_ = app.Run(arrange(app, append([]string{app.Name}, before...)))
}

func candidates(w io.Writer, all ...string) {
	for _, s := range all {
		_, _ = fmt.Fprintln(w, s) // if the shell is gone, errors don't matter
	}
}
