package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// self is the module of package informer.
const self = "github.com/snapcache/snapcache"

const clientGo = "k8s.io/client-go"

//go:embed text/program.go.txt
var programFile []byte

// overlay is the files that are written for one module.
type overlay struct {
	program  program
	out      string   // absolute directory for everything that is written
	patterns []string // of packages, relative to the working directory
	version  string   // of snapcache
	source   string   // directory of snapcache's source in place of version; empty for none
}

func (o *overlay) file(name string) string { return filepath.Join(o.out, name) }

// write writes the overlay and returns the flags of the go command that use it.
func (o *overlay) write(ctx context.Context) ([]string, error) {
	root, err := o.program.root(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, err
	}
	if err := o.copyModule(root); err != nil {
		return nil, err
	}
	all, err := o.program.packages(ctx, []string{"-modfile=" + o.file("go.mod")}, o.patterns)
	if err != nil {
		return nil, err
	}
	modules, mains := map[string]*module{}, []string(nil)
	for _, p := range all {
		if p.Module != nil {
			modules[p.Module.Path] = p.Module
		}
		if p.Name == "main" && !p.DepOnly {
			if p.Module != nil && !p.Module.Main {
				return nil, fmt.Errorf("%s is in another module, of which the go command lets no package be changed: "+
					"write a main package that does the same, in a module of yours", p.ImportPath)
			}
			mains = append(mains, p.Dir)
		}
	}
	switch {
	case len(mains) == 0:
		return nil, fmt.Errorf("there is no main package in %s", strings.Join(o.patterns, " "))
	case modules[clientGo] == nil:
		return nil, fmt.Errorf("%s does not use %s", strings.Join(o.patterns, " "), clientGo)
	}
	version, err := o.writeClientGo(modules[clientGo])
	if err != nil {
		return nil, err
	}
	if err := o.writeFiles(mains); err != nil {
		return nil, err
	}
	flags := []string{"-mod=mod", "-modfile=" + o.file("go.mod"), "-overlay=" + o.file("overlay.json")}
	if err := o.require(ctx, version, modules, func(string) bool { return true }); err != nil {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "snapcache-overlay: compiling snapcache with the modules of the program, the first time for a minute")
	// -trimpath, as most releases are built: the program's build need not compile the same again.
	check := slices.Concat([]string{"build", "-trimpath"}, flags, []string{self + "/informer/unmodified"})
	_, unfit := o.program.command(ctx, check...)
	if unfit != nil {
		if err := o.copyModule(root); err != nil {
			return nil, err
		}
		if err := o.require(ctx, version, modules, ofClientGo); err != nil {
			return nil, err
		}
	}
	// Completes go.mod and go.sum, and finds errors of a build now.
	built, err := o.program.packages(ctx, flags, o.patterns)
	if err != nil {
		return nil, err
	}
	if others := raised(modules, built); unfit != nil && len(others) > 0 {
		fmt.Fprintf(os.Stderr, "snapcache-overlay: the program is built with other versions of %s, "+
			"since snapcache can't be built with its own: %v\n", strings.Join(others, ", "), unfit)
	}
	return flags, nil
}

// raised returns the modules of a program that have another version in a build, each with both versions.
func raised(before map[string]*module, built []pkg) (others []string) {
	for _, p := range built {
		m := p.Module
		if m == nil || m.Path == clientGo || before[m.Path] == nil {
			continue
		}
		if now, was := m.inUse().Version, before[m.Path].inUse().Version; now != was {
			others = append(others, fmt.Sprintf("%s (%s, not %s)", m.Path, now, was))
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// copyModule copies the program's go.mod and go.sum.
func (o *overlay) copyModule(root string) error {
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(o.file(name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeClientGo writes the client-go of the program, with the constructor, and returns its version.
func (o *overlay) writeClientGo(m *module) (version string, err error) {
	if r := m.Replace; r != nil {
		if r.Path != clientGo {
			return "", fmt.Errorf("go.mod replaces %s by %s: the command needs a released one", clientGo, r.Path)
		}
		m = r
	}
	return m.Version, copyClientGo(m.Dir, m.Version, o.file("client-go"))
}

// require adds snapcache to go.mod, and keeps the versions of modules: of all that the program uses, which was written
// for those, unless snapcache can't be built with one.
func (o *overlay) require(ctx context.Context, version string, modules map[string]*module, keep func(path string) bool) error {
	edit := []string{"mod", "edit", "-require=" + self + "@" + o.version, "-replace=" + clientGo + "=" + o.file("client-go")}
	if o.source != "" {
		edit = append(edit, "-replace="+self+"="+o.source)
	}
	// client-go needs them, and snapcache a package of theirs that the program may not use.
	pins := map[string]string{"k8s.io/api": version, "k8s.io/apimachinery": version}
	for _, m := range modules {
		switch {
		case m.Replace != nil:
			delete(pins, m.Path)
		case !m.Main && m.Path != clientGo && keep(m.Path):
			pins[m.Path] = m.Version
		}
	}
	for path, version := range pins {
		edit = append(edit, "-replace="+path+"="+path+"@"+version)
	}
	_, err := o.program.command(ctx, append(edit, o.file("go.mod"))...)
	return err
}

// ofClientGo reports whether a module has to fit client-go's version.
func ofClientGo(path string) bool {
	switch {
	case path == "k8s.io/utils", strings.HasPrefix(path, "k8s.io/klog"):
		return false
	}
	return strings.HasPrefix(path, "k8s.io/") || strings.HasPrefix(path, "sigs.k8s.io/")
}

// writeFiles writes the file that links snapcache into each main package, and the list of them for the go command.
func (o *overlay) writeFiles(mains []string) error {
	if err := os.WriteFile(o.file("program.go"), programFile, 0o644); err != nil {
		return err
	}
	var list struct{ Replace map[string]string }
	list.Replace = map[string]string{}
	for _, dir := range mains {
		list.Replace[filepath.Join(dir, "informers_snapcache.go")] = o.file("program.go")
	}
	text, err := json.MarshalIndent(list, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(o.file("overlay.json"), text, 0o644)
}
