package main

import (
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
)

const (
	// pluginFile is the name under which kubectl finds the program as its plugin.
	pluginFile = "kubectl-snapcache"

	// pluginCommand is what a user of the plugin types, who may have no command snapcache.
	pluginCommand = "kubectl snapcache"
)

// asPlugin makes help and errors name the command of the plugin, if args are those with which kubectl runs
// it.
func asPlugin(app *cli.App, args []string) {
	if len(args) == 0 || strings.TrimSuffix(filepath.Base(args[0]), ".exe") != pluginFile {
		return
	}
	app.HelpName = pluginCommand
	app.UsageText, app.Description = ofPlugin(app.UsageText), ofPlugin(app.Description)
	var rename func([]*cli.Command)
	rename = func(commands []*cli.Command) {
		for _, c := range commands {
			c.UsageText, c.Description = ofPlugin(c.UsageText), ofPlugin(c.Description)
			rename(c.Subcommands)
		}
	}
	rename(app.Commands)
}

// ofPlugin replaces the command at the start of a usage line, and of the indented examples in a description.
// In prose the word is the program's name.
func ofPlugin(text string) string {
	if usage, ok := strings.CutPrefix(text, "snapcache "); ok && !strings.Contains(usage, "\n") {
		return pluginCommand + " " + usage
	}
	const indent = "\n   "
	return strings.ReplaceAll(text, indent+"snapcache ", indent+pluginCommand+" ")
}
