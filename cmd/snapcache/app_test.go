package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/agent"
	"github.com/snapcache/snapcache/cmd/snapcache/internal/kubectl"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

func TestArrange(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", ""},
		{"dump", "dump"},
		{"dump pods", "dump -- pods"},
		{"dump pods -n shop -o json", "dump -n shop -o json -- pods"},
		{"dump -n shop pods -ojson", "dump -n shop -o json -- pods"},
		{"dump -nshop --output=json", "dump -n shop --output json"},
		{"dump -n=shop", "dump -n shop"},
		{"-n shop dump pods", "dump -n shop -- pods"},
		{"--socket s dump", "dump --socket s"},
		{"dump -- -n", "dump -- -n"},
		{"dump pods --", "dump -- pods"},
		{"dump pods --nope", "dump --nope -- pods"},
		{"dump pods -n", "dump -n"},
		{"dump - x", "dump -- - x"},
		{"inspect pods --index node edge-1", "inspect --index node --value edge-1 -- pods"},
		{"inspect --index node edge-1 pods", "inspect --index node --value edge-1 -- pods"},
		{"inspect --index=node edge-1", "inspect --index node --value edge-1"},
		{"inspect --index node --keys pods", "inspect --index node --keys -- pods"},
		{"status -w -o json", "status -w -o json"},
		{"config check --config f", "config check --config f"},
		{"config --config f check", "config check --config f"},
		{"--version", "--version"},
		{"--help dump", "--help dump"},
		{"dump pods --help", "dump --help"},
		{"dump pods -h", "dump -h"},
		{"nope -n x", "nope"},
		{"config chek --config f", "config chek"},
		{"help dump", "help dump"},
	} {
		app := newApp(io.Discard, io.Discard)
		got := arrange(app, append([]string{"snapcache"}, strings.Fields(tc.in)...))
		require.Equal(t, strings.TrimSpace("snapcache "+tc.want), strings.Join(got, " "), "%s", tc.in)
	}
	require.Empty(t, arrange(newApp(io.Discard, io.Discard), nil))
}

// arrange looks options up by name only, so a name must be the same kind of option in all commands.
// Output formats are defined in one place.
func TestFlagsAgree(t *testing.T) {
	isBool := map[string]bool{}
	var walk func([]*cli.Command)
	walk = func(commands []*cli.Command) {
		for _, c := range commands {
			require.NotEmpty(t, c.Usage, c.Name)
			require.NotEmpty(t, c.UsageText, c.Name)
			require.Contains(t, c.Description, "   snapcache ", "%s: examples", c.Name)
			for _, f := range c.Flags {
				_, b := f.(*cli.BoolFlag)
				for _, name := range f.Names() {
					known, ok := isBool[name]
					require.True(t, !ok || known == b, "%s of %s", name, c.Name)
					isBool[name] = b
					if name == outputFlag {
						require.NotEmpty(t, outputFormats[c.Name], c.Name)
					}
				}
			}
			walk(c.Subcommands)
		}
	}
	walk(newApp(io.Discard, io.Discard).Commands)
	for _, format := range kubectl.Formats() {
		require.Contains(t, getDescription, format)
	}
}

// As the file of a kubectl plugin the program is called "kubectl snapcache" in help and errors.
func TestPlugin(t *testing.T) {
	call := func(name string, args ...string) string {
		var out, errOut bytes.Buffer
		execute(append([]string{name}, args...), &out, &errOut)
		return out.String() + errOut.String()
	}
	for _, name := range []string{"/krew/bin/kubectl-snapcache", "kubectl-snapcache.exe"} {
		for _, args := range [][]string{{"--help"}, {"get", "--help"}, {"snapshot", "create", "--help"}, {"reload", "--help"}} {
			help := call(name, args...)
			require.Contains(t, help, "   kubectl snapcache ", "%v", args)
			require.NotRegexp(t, `(?m)^( {6}|USAGE:\n   )snapcache `, help, "%v", args)
		}
		require.Contains(t, call(name, "get"), "see kubectl snapcache get --help")
	}
	require.NotContains(t, call("snapcache", "get", "--help"), pluginCommand)
}

func TestExitCode(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("x"), exitFailure},
		{usagef("x"), exitUsage},
		{fmt.Errorf("x: %w", localapi.ErrNotSynced), exitNotSynced},
		{fmt.Errorf("x: %w", store.ErrNoCollection), exitUsage},
		{fmt.Errorf("x: %w", store.ErrNoIndex), exitUsage},
		{fmt.Errorf("x: %w", store.ErrNoHistory), exitUsage},
		{fmt.Errorf("x: %w", localapi.ErrBadQuery), exitUsage},
		{fmt.Errorf("x: %w", localapi.ErrNoAgent), exitFailure},
		{fmt.Errorf("x: %w", store.ErrForeign), exitCorrupt},
		{fmt.Errorf("x: %w", store.ErrOldFormat), exitCorrupt},
		{&store.CorruptionError{}, exitCorrupt},
		{fmt.Errorf("x: %w", localapi.ErrTooOld), exitTooOld},
		{fmt.Errorf("x: %w", store.ErrAhead), exitFailure},
		{errors.Join(corrupt(&localapi.CorruptRecordsError{More: 1}), notSynced([]localapi.Collection{{ID: "a"}})), exitCorrupt},
		{errors.Join(&config.Error{}, &config.Error{}), exitUsage},
		{fmt.Errorf("x: %w", &agent.UsageError{Err: errors.New("y")}), exitUsage},
		{cli.Exit("No help topic", 3), exitUsage},
	} {
		require.Equal(t, tc.want, exitCode(tc.err), "%v", tc.err)
	}
}

// brokenPipe is the output after its reader has exited.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, &wrapped{syscall.EPIPE} }

type wrapped struct{ error }

func (w *wrapped) Unwrap() error { return w.error }

// "snapcache dump | head" ends without an error.
func TestBrokenPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	c := content{Info: store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod"}, Synced: true, Age: "1s"}
	for i := range 1000 {
		c.Objects = append(c.Objects, fmt.Appendf(nil, `{"metadata":{"name":"p-%d","annotations":{"a":"%0100d"}}}`, i, i))
	}
	require.NoError(t, c.put(db))
	require.NoError(t, db.Close())
	for _, args := range []string{"dump", "dump -o json", "dump -o name", "inspect", "inspect --keys", "inspect --keys -o json", "inspect --index namespace"} {
		var errOut bytes.Buffer
		code := execute(append([]string{"snapcache"}, append(strings.Fields(args), "--db", path)...), brokenPipe{}, &errOut)
		require.Equal(t, exitOK, code, args)
		require.Empty(t, errOut.String(), args)
	}
}

// An index that is being built is printed like a complete one.
func TestIndexBuilding(t *testing.T) {
	live := filepath.Join(t.TempDir(), "live.db")
	db, err := bolt.Open(live, bolt.Options{})
	require.NoError(t, err)
	var contents []content
	for _, id := range []string{"nodes", "pods"} {
		c := content{Info: store.Info{ID: id, Version: "v1", Resource: id, Kind: "Thing"}, Synced: true, Age: "1s", Labels: []string{"app"}}
		c.Objects = append(c.Objects, []byte(`{"metadata":{"name":"a","labels":{"app":"till","tier":"edge"}}}`))
		require.NoError(t, c.put(db))
		contents = append(contents, c)
	}
	blocked := make(chan struct{})
	slow := store.LabelIndex("app", "tier")
	slow.Func = func(*object.Object) []string { <-blocked; return nil }
	_, err = db.Open(contents[1].Info, slow)
	require.NoError(t, err)
	raw, err := os.ReadFile(live)
	require.NoError(t, err)
	close(blocked)
	require.NoError(t, db.Close())
	path := filepath.Join(t.TempDir(), "cache.db")
	require.NoError(t, os.WriteFile(path, raw, 0o600))

	for _, tc := range []struct {
		args string
		want []string
	}{
		{"inspect pods --index app", []string{"edge"}},
		{"inspect pods --index app edge", []string{"a"}},
		{"inspect --index app", []string{"nodes", "till", "pods", "edge"}},
		{"inspect --index app edge -o json", []string{"pods"}},
	} {
		var out, errOut bytes.Buffer
		code := execute(append([]string{"snapcache"}, append(strings.Fields(tc.args), "--db", path)...), &out, &errOut)
		require.Equal(t, exitOK, code, "%s: %s", tc.args, errOut.String())
		for _, want := range tc.want {
			require.Contains(t, out.String(), want, tc.args)
		}
	}
	var out, errOut bytes.Buffer
	require.Equal(t, exitOK, execute([]string{"snapcache", "inspect", "--db", path}, &out, &errOut), errOut.String())
	require.Contains(t, out.String(), "namespace,app (building)")
}
