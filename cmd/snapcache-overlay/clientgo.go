package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The minor versions of client-go that were tried. Types that package informer needs have been in it since typed.
const (
	oldest, newest = 33, 37
	typed          = 36
)

var (
	//go:embed text/constructor.go.txt
	constructorFile []byte
	//go:embed text/call.go.txt
	constructorCall []byte
	//go:embed text/declarations.go.txt
	declarationsFile []byte
)

// hooked is the function of client-go that makes all shared informers.
const hooked = "NewSharedIndexInformerWithOptions"

// minorOf returns the minor version of client-go, or an error if it was not tried.
func minorOf(version string) (int, error) {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) > 1 && parts[0] == "0" {
		if minor, err := strconv.Atoi(parts[1]); err == nil && minor >= oldest && minor <= newest {
			return minor, nil
		}
	}
	return 0, fmt.Errorf("client-go %s is not known, only 0.%d to 0.%d: require one of these in go.mod, or take a snapcache that knows yours",
		version, oldest, newest)
}

// copyClientGo copies the client-go in dir to a new directory, with the constructor in it.
func copyClientGo(dir, version, to string) error {
	minor, err := minorOf(version)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		return err
	}
	folder := filepath.Join(to, "tools", "cache")
	file := filepath.Join(folder, "shared_informer.go")
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	source, err = addCall(source)
	if err != nil {
		return fmt.Errorf("client-go %s in %s: %w", version, dir, err)
	}
	if err := os.WriteFile(file, source, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "shared_informer_constructor.go"), constructorFile, 0o644); err != nil {
		return err
	}
	if minor >= typed {
		return nil
	}
	return os.WriteFile(filepath.Join(folder, "declarations_snapcache.go"), declarationsFile, 0o644)
}

// addCall returns source, which is client-go's shared_informer.go, with a call of the constructor at the beginning of
// the function that makes the informers.
func addCall(source []byte) ([]byte, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "shared_informer.go", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Name.Name != hooked {
			continue
		}
		var names []string
		for _, p := range f.Type.Params.List {
			for _, n := range p.Names {
				names = append(names, n.Name)
			}
		}
		if strings.Join(names, " ") != "lw exampleObject options" {
			return nil, fmt.Errorf("%s has other arguments than were released: %s", hooked, strings.Join(names, ", "))
		}
		at := files.Position(f.Body.Lbrace).Offset + 1
		return bytes.Join([][]byte{source[:at], constructorCall, source[at:]}, nil), nil
	}
	return nil, fmt.Errorf("it has no function %s", hooked)
}
