package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// version is set in a release build: -ldflags "-X main.version=v1.2.3".
var version string

// programVersion returns the version set at build time, or the one in Go's build info.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

type versionAnswer struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:      "version",
		Usage:     "print the version of this program",
		UsageText: "snapcache version [-o text|json]",
		Description: `Prints the version, the commit it was built from, and the platform.

   snapcache version
   snapcache version -o json`,
		Flags: []cli.Flag{newOutputFlag("version")},
		Action: atMost(0, func(c *cli.Context) error {
			v := versionAnswer{Version: programVersion(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			return output(c, c.App.Writer, v, func() error {
				_, err := fmt.Fprintf(c.App.Writer, "snapcache %s (%s, %s)\n", v.Version, v.Go, v.Platform)
				return err
			})
		}),
	}
}
