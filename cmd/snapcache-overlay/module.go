package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// pkg is a package in the output of "go list -deps -json".
type pkg struct {
	Name       string
	ImportPath string
	Dir        string
	DepOnly    bool    // no pattern names it
	Module     *module // nil for the standard library
}

type module struct {
	Path    string
	Version string
	Dir     string
	Main    bool
	Replace *module
}

// inUse returns the module that go.mod puts in the place of m, m itself for none.
func (m *module) inUse() *module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

// program is the module of a program, in a directory.
type program struct{ dir string }

// command runs the go command in the program's module, outside of workspaces and vendor directories, and returns its
// output.
func (p program) command(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s, in %s: %w\n%s", strings.Join(args, " "), p.dir, err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// packages returns the packages that patterns name, and all that they use, in a build with flags.
func (p program) packages(ctx context.Context, flags, patterns []string) ([]pkg, error) {
	args := slices.Concat([]string{"list", "-deps", "-json=Name,ImportPath,Dir,DepOnly,Module"}, flags, patterns)
	out, err := p.command(ctx, args...)
	if err != nil {
		return nil, err
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
}

// root returns the directory of the program's go.mod.
func (p program) root(ctx context.Context) (string, error) {
	out, err := p.command(ctx, "env", "GOMOD")
	if err != nil {
		return "", err
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return "", fmt.Errorf("no go.mod in %s or above it: run the command in the program's module", p.dir)
	}
	return filepath.Dir(file), nil
}
