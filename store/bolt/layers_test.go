package bolt_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	bboltPackage = "go.etcd.io/bbolt"
	thisPackage  = "github.com/snapcache/snapcache/store/bolt"
)

// listImports returns the packages that go list prints for a package and a template.
func listImports(t *testing.T, pkg, template string) []string {
	cmd := exec.Command("go", "list", "-deps", "-f", template, pkg)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return strings.Fields(string(out))
}

// The layers, from the bottom: format, boltfile, writeback, and the package itself.
func TestLayers(t *testing.T) {
	direct := func(pkg string) []string {
		return listImports(t, pkg, `{{if eq .ImportPath "`+pkg+`"}}{{join .Imports " "}}{{end}}`)
	}
	internal := thisPackage + "/internal/"
	for _, c := range []struct {
		name   string
		pkg    string
		direct []string // packages that it must not import itself
		deps   []string // packages that it must not import even indirectly
	}{
		{"format does no I/O", internal + "format", []string{"os", "io"}, []string{bboltPackage, internal + "boltfile", internal + "writeback", thisPackage}},
		{"boltfile is below writeback", internal + "boltfile", nil, []string{internal + "writeback", thisPackage}},
		{"writeback has its file from boltfile", internal + "writeback", []string{bboltPackage, bboltPackage + "/errors", "os"}, []string{thisPackage}},
		{"only boltfile imports bbolt", thisPackage, []string{bboltPackage, bboltPackage + "/errors"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pkg := range direct(c.pkg) {
				require.NotContains(t, c.direct, pkg)
			}
			for _, pkg := range listImports(t, c.pkg, `{{.ImportPath}}`) {
				if pkg != c.pkg {
					require.NotContains(t, c.deps, pkg)
				}
			}
		})
	}
}
