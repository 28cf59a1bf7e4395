package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const header = "apiVersion: snapcache.dev/v1alpha1\nkind: AgentConfiguration\n"

// mustParse loads a file that has to be valid.
func mustParse(t *testing.T, name string) *AgentConfiguration {
	t.Helper()
	c, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGoodFiles(t *testing.T) {
	setHome(t)
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, file := range append(files, "example.yaml", "../examples/node/agent.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c := mustParse(t, file)
			if err := c.Validate(); err != nil {
				t.Errorf("the parsed configuration is not valid: %v", err)
			}
			checkStable(t, c)
		})
	}
}

// checkStable checks that a configuration survives being written and read again.
func checkStable(t *testing.T, c *AgentConfiguration) {
	t.Helper()
	once, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again.yaml", once)
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, once)
	}
	twice, err := yaml.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if string(once) != string(twice) {
		t.Errorf("written once:\n%s\nwritten twice:\n%s", once, twice)
	}
}

func TestGoodValues(t *testing.T) {
	setHome(t)
	t.Run("till", func(t *testing.T) {
		c := mustParse(t, "testdata/good/till.yaml")
		if c.Store.CommitInterval.Duration != time.Second || c.Store.MaxSize.Value() != 64<<20 {
			t.Errorf("store: %+v", c.Store)
		}
		if c.History.Retention.Duration != 7*24*time.Hour || c.History.MaxSize.Value() != 256<<10 {
			t.Errorf("history: %+v", c.History)
		}
		if c.Kubeconfig != "/etc/snapcache/kubeconfig" || c.Store.Path != "/data/cache.db" || c.LocalAPI.Socket != "/run/till/snapcache.sock" || c.Metrics.Address != "localhost:9000" {
			t.Errorf("paths and addresses: %+v", c)
		}
		if want := (KubernetesAPI{Address: "[::1]:6445", Socket: "/run/till/kube.sock", CertFile: "/data/tls.crt", KeyFile: "/data/tls.key", OpenAPI: true}); !reflect.DeepEqual(c.KubernetesAPI, want) || !want.Enabled() {
			t.Errorf("kubernetesAPI: %+v", c.KubernetesAPI)
		}
		if c.Log != (Log{Level: LogDebug, Format: LogJSON}) {
			t.Errorf("log: %+v", c.Log)
		}
		r := c.Resources[0]
		if r.Resource != (ResourceName{Resource: "pods", Version: "v1"}) || r.LabelSelector != "app=till" || r.FieldSelector != "spec.nodeName=edge-1" || !r.Transform.KeepManagedFields {
			t.Errorf("resources[0]: %+v", r)
		}
		if r.Staleness.Policy != StalenessRefuse || r.Staleness.MaxAge.Duration != time.Hour || c.Resources[1].Staleness.Policy != StalenessWarn {
			t.Errorf("staleness: %+v, %+v", r.Staleness, c.Resources[1].Staleness)
		}
		if want := (Index{Name: "owner", Field: `metadata.annotations.example\.com/owner`}); r.Indexes[1] != want {
			t.Errorf("indexes[1]: %+v", r.Indexes[1])
		}
		if want := (schema.GroupResource{Group: "example.com", Resource: "widgets"}); c.Resources[2].Resource.GroupResource() != want {
			t.Errorf("resources[2]: %+v", c.Resources[2])
		}
	})
	t.Run("text", func(t *testing.T) {
		r := mustParse(t, "testdata/good/text.yaml").Resources[0]
		if want := []string{"on", "no", "y", "0123", "1e3"}; !slices.Equal(r.Namespaces, want) {
			t.Errorf("namespaces %q, want %q", r.Namespaces, want)
		}
		if want := "app in (till, scale), tier!=test"; r.LabelSelector != want {
			t.Errorf("selector %q, want %q", r.LabelSelector, want)
		}
	})
	t.Run("secrets", func(t *testing.T) {
		c := mustParse(t, "testdata/good/secrets.yaml")
		if !c.Secrets.Allowed() || c.Store.MaxSize.Value() != 3<<29 {
			t.Errorf("secrets %+v, size %v", c.Secrets, c.Store.MaxSize.Value())
		}
	})
	for _, file := range []string{"minimal", "nulls"} {
		t.Run(file, func(t *testing.T) {
			got, err := yaml.Marshal(mustParse(t, "testdata/good/"+file+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			want, err := yaml.Marshal(Default())
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("got:\n%s\nwant the default:\n%s", got, want)
			}
		})
	}
}

// example.yaml has every field.
func TestExampleIsComplete(t *testing.T) {
	setHome(t)
	data, err := os.ReadFile("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc := &document{name: "example.yaml", lines: map[string]int{}}
	root, err := doc.parse(data)
	if err != nil {
		t.Fatal(err)
	}
	doc.walk(root, reflect.ValueOf(&AgentConfiguration{}).Elem(), "")
	shown := map[string]bool{}
	for path := range doc.lines {
		shown[regexp.MustCompile(`\[\d+\]`).ReplaceAllString(path, "[]")] = true
	}
	fields := fieldPaths()
	if len(fields) < 25 {
		t.Fatalf("only %d fields found", len(fields))
	}
	for _, path := range fields {
		if !shown[path] {
			t.Errorf("%s is not in example.yaml", path)
		}
	}
	if c := mustParse(t, "example.yaml"); c.Secrets.Allowed() {
		t.Error("a copy of the example must not consent to storing Secrets")
	}
}

// Each file of testdata/bad.txtar has exactly its lines of errors.
func TestBadFiles(t *testing.T) {
	setHome(t)
	archive, err := txtar.ParseFile("testdata/bad.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := archive.Files
	if len(files) == 0 || len(files)%2 != 0 {
		t.Fatalf("%d files: each .yaml needs its .err", len(files))
	}
	for ; len(files) > 0; files = files[2:] {
		name, ok := strings.CutSuffix(files[0].Name, ".yaml")
		if !ok || files[1].Name != name+".err" {
			t.Fatalf("%s is followed by %s", files[0].Name, files[1].Name)
		}
		data, want := files[0].Data, strings.TrimSuffix(string(files[1].Data), "\n")
		t.Run(name, func(t *testing.T) {
			c, err := Parse("agent.yaml", data)
			if err == nil || c != nil {
				t.Fatalf("accepted: %+v, %v", c, err)
			}
			if err.Error() != want {
				t.Errorf("got:\n%v\nwant:\n%s", err, want)
			}
		})
	}
}

// These bad files are not text.
func TestParseNotUTF8(t *testing.T) {
	for _, test := range []struct {
		name string
		data string
		want string
	}{
		{"UTF-16", "\xff\xfea\x00p\x00", "agent.yaml:1: not plain UTF-8 text (byte 0xff)"},
		{"Latin-1", header + "kubeconfig: /etc/k\xfcche\n", "agent.yaml:3: not plain UTF-8 text (byte 0xfc)"},
		{"Latin-1 after UTF-8", header + "kubeconfig: /\u00e9/k\xfcche\n", "agent.yaml:3: not plain UTF-8 text (byte 0xfc)"},
		{"control character", header + "\nkubeconfig: a\x00b\n", "agent.yaml:4: not plain UTF-8 text (byte 0x00)"},
		{"escaped control character", header + `kubeconfig: "a\0b"`, "agent.yaml:3: kubeconfig: the character U+0000 is not allowed here: give one line of plain text"},
		{"database", strings.Repeat("\x00", maxFileSize+1), "agent.yaml: larger than 1 MiB: not a configuration file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := Parse("agent.yaml", []byte(test.data)); err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

// A caller gets file, line, field and message from an error.
func TestErrorIsTyped(t *testing.T) {
	setHome(t)
	_, err := Parse("agent.yaml", []byte(header+"resources:\n- resource: pods\n  labelSelector: a b\n"))
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	if e.File != "agent.yaml" || e.Line != 5 || e.Field != "resources[0].labelSelector" || e.Message == "" {
		t.Errorf("%+v", e)
	}
}

// Large files that are bad throughout get a short answer. At the limit of 1 MiB they take at most 3
// s. The test uses less, because the race detector takes ten times as long.
func TestLargeFiles(t *testing.T) {
	setHome(t)
	for _, test := range []struct {
		name   string
		before string
		repeat string
		errors int
	}{
		{"unknown fields", "", "x%d: 1\n", maxErrors + 1},
		{"unknown fields of a list", "resources:\n", "- x%d:\n", maxErrors + 1},
		{"bad and missing in turns", "resources:\n", "- resource: P%d\n- labelSelector: '%[1]d='\n", maxErrors + 1},
		{"namespaces", "resources:\n- resource: pods\n  namespaces:\n", "  - N%d\n", maxErrors + 1},
		{"depth", "resources: ", "[", 1},
		{"flow depth", "store: ", "{a: ", 1},
		{"one line", "kubeconfig: ", "x", 0},
		{"selector", "resources:\n- resource: pods\n  labelSelector: ", "a,", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString(header + test.before)
			for i := 0; b.Len() < maxFileSize/16; i++ {
				if strings.Contains(test.repeat, "%") {
					fmt.Fprintf(&b, test.repeat, i)
				} else {
					b.WriteString(test.repeat)
				}
			}
			_, err := Parse("agent.yaml", []byte(b.String()))
			var joined interface{ Unwrap() []error }
			got := 0
			switch {
			case errors.As(err, &joined):
				got = len(joined.Unwrap())
			case err != nil:
				got = 1
			}
			if got != test.errors {
				t.Errorf("%d errors, want %d: %.300v", got, test.errors, err)
			}
		})
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	unreadable := filepath.Join(dir, "unreadable.yaml")
	if err := os.WriteFile(unreadable, []byte(header), 0); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		path    string
		want    string
		is      error
		notRoot bool
	}{
		{name: "missing", path: filepath.Join(dir, "agent.yaml"), is: fs.ErrNotExist,
			want: `no such file: create it with the two lines "apiVersion: snapcache.dev/v1alpha1" and "kind: AgentConfiguration", which is a complete configuration, or leave out --config for the same`},
		{name: "directory", path: dir, want: "is a directory: give the path of a configuration file"},
		{name: "below a file", path: filepath.Join(unreadable, "agent.yaml"), want: "read failed: not a directory"},
		{name: "unreadable", path: unreadable, is: fs.ErrPermission, notRoot: true,
			want: "permission denied: make the file readable for the user that runs the agent"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.notRoot && os.Geteuid() == 0 {
				t.Skip("root may read every file")
			}
			c, err := Load(test.path)
			if err == nil || c != nil {
				t.Fatalf("accepted: %+v, %v", c, err)
			}
			if want := test.path + ": " + test.want; err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
		})
	}
}

// No input panics, every error is one line, and an accepted configuration survives being written
// and read again.
func FuzzParse(f *testing.F) {
	f.Setenv("HOME", "/home/till")
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "example.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	archive, err := txtar.ParseFile("testdata/bad.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range archive.Files {
		f.Add(file.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("agent.yaml", data)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "agent.yaml:") {
					t.Errorf("a line without the file's name: %q", line)
				}
			}
			return
		}
		checkStable(t, c)
	})
}

// The walk assumes that the tree it checks has what the YAML library's decoder reads from the same
// text.
func TestParsersAgree(t *testing.T) {
	setHome(t)
	data, err := os.ReadFile("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var direct AgentConfiguration
	if err := yaml.UnmarshalStrict(data, &direct); err != nil {
		t.Fatal(err)
	}
	direct.SetDefaults()
	want, err := yaml.Marshal(direct)
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(mustParse(t, "example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
