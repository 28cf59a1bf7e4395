package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ServerEnv is the environment variable that names the [Server] of [Build]; empty means the newest that is pinned,
// on etcd.
const ServerEnv = "SNAPCACHE_CONTROLPLANE_SERVER"

// Server is a version of kube-apiserver on a datastore.
type Server struct {
	Version string // "v1.31.14"
	Kine    bool   // on SQLite through kine, as k3s runs it, instead of etcd
}

// serverVersions has the newest version of each minor version that the module proxy serves, beside the pinned one of
// the module apiserver.
var serverVersions = []string{
	"v1.29.6", "v1.30.14", "v1.31.14", "v1.32.13", "v1.33.13", "v1.34.4", "v1.35.4", "v1.37.2",
}

// AllServers returns each version on etcd, and the oldest and the newest on kine.
func AllServers() ([]Server, error) {
	pinned, err := pinnedServer()
	if err != nil {
		return nil, err
	}
	versions := slices.Sorted(slices.Values(append([]string{pinned}, serverVersions...))) // 1.100 is far away
	var all []Server
	for _, v := range versions {
		all = append(all, Server{Version: v})
	}
	return append(all, Server{versions[0], true}, Server{versions[len(versions)-1], true}), nil
}

// ParseServers returns the servers of a list of names: "1.31" is one on etcd, "1.31-kine" the same on kine, "kine" all
// on kine that [AllServers] has.
func ParseServers(names string) ([]Server, error) {
	all, err := AllServers()
	if err != nil {
		return nil, err
	}
	var picked []Server
	for _, name := range strings.Fields(names) {
		n := len(picked)
		for _, s := range all {
			switch version, onKine := strings.CutSuffix(name, "-kine"); {
			case name == "kine" && s.Kine:
				picked = append(picked, s)
			case version == s.minor() && len(picked) == n:
				picked = append(picked, Server{s.Version, onKine})
			}
		}
		if len(picked) == n {
			return nil, fmt.Errorf("no server %q: say kine, or a version from %s to %s, with or without -kine",
				name, all[0].minor(), all[len(all)-1].minor())
		}
	}
	return picked, nil
}

// String returns the name that [ParseServers] takes.
func (s Server) String() string {
	if s.Kine {
		return s.minor() + "-kine"
	}
	return s.minor()
}

// minor returns "1.31" for "v1.31.14".
func (s Server) minor() string {
	return strings.TrimPrefix(s.Version[:strings.LastIndexByte(s.Version, '.')], "v")
}

// pinnedServer returns the version of the module apiserver.
func pinnedServer() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	version, _, err := apiserver.readModule(filepath.Join(root, sourceDir, apiserver.module))
	return version, err
}

// programs returns the programs of the server.
func (s Server) programs() ([]program, error) {
	pinned, err := pinnedServer()
	if err != nil {
		return nil, err
	}
	all := []program{kubectl, apiserver}
	if s.Version != "" && s.Version != pinned {
		all[1] = program{
			name: apiserver.name, pkg: apiserver.pkg, pin: apiserver.pin, version: s.Version, stamp: true,
			// 1.30 and older have the drivers of cloud providers, of which not each version is served.
			tags: "providerless", took: "3 minutes",
		}
	}
	if s.Kine {
		return append(all, kine), nil
	}
	return append(all, etcd, etcdutl), nil
}

// chosenServer returns the server that the environment names.
func chosenServer() (Server, error) {
	name := os.Getenv(ServerEnv)
	if name == "" {
		return Server{}, nil
	}
	picked, err := ParseServers(name)
	if err == nil && len(picked) != 1 {
		err = fmt.Errorf("%q are %d servers", name, len(picked))
	}
	if err != nil {
		return Server{}, fmt.Errorf("%s: %w", ServerEnv, err)
	}
	return picked[0], nil
}

// staging finds the modules that kubernetes has in its own tree.
var staging = regexp.MustCompile(`(?m)^\s*(?:replace )?(\S+) => \./staging/`)

// writeModule writes a module that pins a version of kubernetes, into a folder. Outside of kubernetes' tree its staging
// modules are published under v0. The versions of all others are those that kubernetes requires; the checksum database
// vouches for the content.
func writeModule(ctx context.Context, dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.GoMod}}", "k8s.io/kubernetes@"+version)
	list.Dir, list.Env, list.Stderr = dir, buildEnv("-mod=mod"), io.Discard
	path, err := list.Output()
	if err != nil {
		return fmt.Errorf("look kubernetes %s up: %w", version, err)
	}
	its, err := os.ReadFile(strings.TrimSpace(string(path)))
	if err != nil {
		return err
	}
	var mod strings.Builder
	fmt.Fprintf(&mod, "module server\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes %s\n\n", version)
	for _, m := range staging.FindAllSubmatch(its, -1) {
		fmt.Fprintf(&mod, "replace %s => %[1]s v0%s\n", m[1], strings.TrimPrefix(version, "v1"))
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod.String()), 0o600)
}
