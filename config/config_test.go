package config

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// setHome makes defaults independent of the machine.
func setHome(t *testing.T) {
	t.Setenv("HOME", "/home/till")
	for _, variable := range []string{"STATE_DIRECTORY", "RUNTIME_DIRECTORY", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "NODE_NAME"} {
		t.Setenv(variable, "")
	}
}

// fieldPaths returns the paths of all fields of the configuration, such as
// resources[].indexes[].name.
func fieldPaths() []string {
	var paths []string
	var visit func(t reflect.Type, path string)
	visit = func(t reflect.Type, path string) {
		if path != "" && !strings.HasSuffix(path, "[]") {
			paths = append(paths, path)
		}
		switch {
		case t.Kind() == reflect.Slice:
			visit(t.Elem(), path+"[]")
		case t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[Store]().PkgPath() && t != reflect.TypeFor[ResourceName]():
			names, fields := fieldsOf(t)
			for i, name := range names {
				visit(fields[i].Type, strings.TrimPrefix(path+"."+name, "."))
			}
		}
	}
	visit(reflect.TypeFor[AgentConfiguration](), "")
	return paths
}

func TestDefaultPaths(t *testing.T) {
	for _, test := range []struct {
		name   string
		env    map[string]string
		root   bool
		file   string // of the configuration
		store  string // configured
		path   string
		socket string
	}{
		{name: "systemd", root: true,
			env:  map[string]string{"STATE_DIRECTORY": "/var/lib/one", "RUNTIME_DIRECTORY": "/run/one", "HOME": "/root", "XDG_RUNTIME_DIR": "/run/user/0"},
			path: "/var/lib/one/cache.db", socket: "/run/one/snapcache.sock"},
		{name: "systemd, several directories",
			env:  map[string]string{"STATE_DIRECTORY": "/var/lib/one:/var/lib/two", "RUNTIME_DIRECTORY": "/run/one:/run/two"},
			path: "/var/lib/one/cache.db", socket: "/run/one/snapcache.sock"},
		{name: "root", root: true, env: map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/x"},
			path: "/var/lib/snapcache/cache.db", socket: "/run/snapcache/snapcache.sock"},
		{name: "user", env: map[string]string{"HOME": "/home/till", "XDG_RUNTIME_DIR": "/run/user/7"},
			path: "/home/till/.local/state/snapcache/cache.db", socket: "/run/user/7/snapcache/snapcache.sock"},
		{name: "user with state home", env: map[string]string{"HOME": "/home/till", "XDG_STATE_HOME": "/state"},
			path: "/state/snapcache/cache.db", socket: "/state/snapcache/snapcache.sock"},
		{name: "relative directories are ignored", env: map[string]string{"HOME": "/home/till", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"},
			path: "/home/till/.local/state/snapcache/cache.db", socket: "/home/till/.local/state/snapcache/snapcache.sock"},
		{name: "root, another cluster's service", root: true, file: "/etc/snapcache/east/agent.yaml",
			path: "/var/lib/snapcache/east/cache.db", socket: "/run/snapcache/east/snapcache.sock"},
		{name: "root, another file", root: true, file: "/etc/snapcache/east/other.yaml",
			path: "/var/lib/snapcache/cache.db", socket: "/run/snapcache/snapcache.sock"},
		{name: "configured database", store: "/data/c.db", path: "/data/c.db", socket: "/data/snapcache.sock"},
		{name: "nowhere"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &AgentConfiguration{TypeMeta: TypeMeta{APIVersion, Kind}, Store: Store{Path: test.store}}
			service, _ := ServiceOf(test.file)
			c.setDefaults(surroundings{getenv: func(name string) string { return test.env[name] }, root: test.root, service: service})
			if c.Store.Path != test.path || c.LocalAPI.Socket != test.socket {
				t.Errorf("got  %q %q\nwant %q %q", c.Store.Path, c.LocalAPI.Socket, test.path, test.socket)
			}
			err := c.Validate()
			if (err == nil) != (test.path != "") {
				t.Errorf("validation: %v", err)
			}
		})
	}
}

func TestDefault(t *testing.T) {
	setHome(t)
	c := Default()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	var names []string
	for _, r := range c.Resources {
		names = append(names, r.Resource.String())
	}
	if want := []string{"namespaces", "nodes", "pods", "services", "configmaps", "endpointslices.discovery.k8s.io"}; !slices.Equal(names, want) {
		t.Errorf("resources %q, want %q", names, want)
	}
	if c.Store.Type != StoreBolt || c.Store.CommitInterval.Duration != 5*time.Second || c.Store.MaxSize.Value() != 1<<30 {
		t.Errorf("store: %+v", c.Store)
	}
	if c.History.Retention.Duration != 24*time.Hour || c.History.MaxSize.Value() != 16<<20 {
		t.Errorf("history: %+v", c.History)
	}
	if c.Metrics != (Metrics{Address: "127.0.0.1:9743"}) || c.Log != (Log{LogInfo, LogText}) || c.Secrets.Allowed() {
		t.Errorf("%+v", c)
	}
}

// Only a configuration made in Go can have these errors.
func TestValidateGoValues(t *testing.T) {
	setHome(t)
	for _, test := range []struct {
		name   string
		change func(*AgentConfiguration)
		want   string
	}{
		{"no kind", func(c *AgentConfiguration) { c.APIVersion, c.Kind = "", "" },
			"snapcache.dev/v1alpha1 AgentConfiguration expected, found neither apiVersion nor kind"},
		{"no defaults", func(c *AgentConfiguration) { c.Log = Log{Level: "info"} },
			`log.format: "" is not one of text, json`},
		{"no name", func(c *AgentConfiguration) { c.Resources[0].Resource = ResourceName{} },
			"resources[0].resource: missing: name a resource, as in pods, deployments.apps or widgets.v1.example.com"},
		{"a profile without defaults", func(c *AgentConfiguration) { c.Profile = ProfileNode },
			"nodeName: there is no default, because neither $NODE_NAME nor the host's name is set: give the name of this node"},
		{"a kubelet's signer without defaults", func(c *AgentConfiguration) {
			c.KubernetesAPI.Address, c.KubernetesAPI.Signer = "127.0.0.1:6445", SignerKubeletServing
		}, "nodeName: there is no default, because neither $NODE_NAME nor the host's name is set: give the name of this node"},
		{"no place for the token", func(c *AgentConfiguration) {
			c.Store = Store{Type: StoreMemory, CommitInterval: c.Store.CommitInterval, MaxSize: c.Store.MaxSize}
			c.KubernetesAPI.Address = "127.0.0.1:6445"
		}, "kubernetesAPI.address: the token is kept beside the database, and store.path has no default, because neither $XDG_STATE_HOME nor $HOME is set: give store.path"},
		{"part of a byte", func(c *AgentConfiguration) { c.Store.MaxSize = resource.MustParse("20000000500m") },
			"store.maxSize: 20000000500m is not a whole number of bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Default()
			test.change(c)
			err := c.Validate()
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("%T", err)
			}
		})
	}
}

func TestAddressesWithAccess(t *testing.T) {
	for _, address := range []string{"127.0.0.1:6445", "localhost:6445", "[::1]:6445", "169.254.20.1:6445", "10.0.0.7:443", "[fd00::7]:6445", "[::ffff:10.0.0.7]:6445"} {
		t.Run(address, func(t *testing.T) {
			setHome(t)
			c := Default()
			c.KubernetesAPI = KubernetesAPI{Address: address, Access: Access{Enabled: true}}
			c.SetDefaults()
			if err := c.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParseResourceName(t *testing.T) {
	for _, test := range []struct {
		in   string
		want ResourceName
		out  string // if not the input
	}{
		{in: "pods", want: ResourceName{"pods", "", ""}},
		{in: "pods.v1", want: ResourceName{"pods", "v1", ""}},
		{in: "pods.v1.", want: ResourceName{"pods", "v1", ""}, out: "pods.v1"},
		{in: "deployments.apps", want: ResourceName{"deployments", "", "apps"}},
		{in: "deployments.v1.apps", want: ResourceName{"deployments", "v1", "apps"}},
		{in: "widgets.v1.example.com", want: ResourceName{"widgets", "v1", "example.com"}},
		{in: "widgets.v2beta10.example.com", want: ResourceName{"widgets", "v2beta10", "example.com"}},
		{in: "widgets.v1alpha1.v1.example.com", want: ResourceName{"widgets", "v1alpha1", "v1.example.com"}},
		{in: "endpointslices.discovery.k8s.io", want: ResourceName{"endpointslices", "", "discovery.k8s.io"}},
		{in: "things.v1x.example.com", want: ResourceName{"things", "", "v1x.example.com"}},
		{in: "things.vbeta1.example.com", want: ResourceName{"things", "", "vbeta1.example.com"}},
	} {
		got, err := ParseResourceName(test.in)
		if err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v; want %+v", test.in, got, err, test.want)
		}
		out := test.out
		if out == "" {
			out = test.in
		}
		if got.String() != out {
			t.Errorf("%s: written as %s, want %s", test.in, got, out)
		}
	}
}

func TestCheckFieldPath(t *testing.T) {
	for _, test := range []struct {
		path  string
		valid bool
	}{
		{`spec.nodeName`, true}, {`kind`, true}, {`metadata.annotations.example\.com/owner`, true}, {`a_b.c-d.0`, true},
		{`\.`, true}, {`a\..b`, true}, {strings.Repeat("a", 512), true},
		{``, false}, {`.`, false}, {`.a`, false}, {`a.`, false}, {`a..b`, false}, {`a\`, false}, {`a\b`, false}, {`a\\.b`, false},
		{`a|b`, false}, {`a.#`, false}, {`@this`, false}, {`a*`, false}, {`a?`, false}, {`!a`, false}, {`{a}`, false},
		{`[0]`, false}, {`(a)`, false}, {`a b`, false}, {`ä`, false}, {"a\xff", false}, {`a:b`, false}, {`~a`, false}, {"a\n", false},
		{strings.Repeat("a", 512+1), false},
	} {
		if err := checkFieldPath(test.path); (err == nil) != test.valid {
			t.Errorf("%q: %v", test.path, err)
		}
	}
}

func TestLogLevel(t *testing.T) {
	for _, tc := range []struct {
		level LogLevel
		want  slog.Level
	}{
		{LogDebug, slog.LevelDebug}, {LogInfo, slog.LevelInfo}, {LogWarn, slog.LevelWarn}, {LogError, slog.LevelError}, {"", slog.LevelInfo},
	} {
		if got := tc.level.Level(); got != tc.want {
			t.Errorf("%q: got %v, want %v", tc.level, got, tc.want)
		}
	}
}

func TestEncryption(t *testing.T) {
	c := Default()
	if c.Encryption.KeyFile != "" {
		t.Error("on by default")
	}
	c.Encryption = Encryption{KeyFile: "key", OldKeyFiles: []string{"old"}}
	if err := c.Validate(); err != nil || !(c.Encryption.KeyFile != "") {
		t.Errorf("%v, on: %v", err, (c.Encryption.KeyFile != ""))
	}
}

func TestRestoreSeed(t *testing.T) {
	for _, tc := range []struct {
		seed string
		want [2]string
	}{
		{"", [2]string{"", ""}},
		{"hub", [2]string{"", "hub"}},
		{"hub.example.com", [2]string{"", "hub.example.com"}},
		{"./seed.snap", [2]string{"./seed.snap", ""}},
		{"/etc/snapcache/seed.snap", [2]string{"/etc/snapcache/seed.snap", ""}},
	} {
		r := Restore{Seed: tc.seed}
		if r.File() != tc.want[0] || r.Context() != tc.want[1] {
			t.Errorf("%q: file %q, context %q", tc.seed, r.File(), r.Context())
		}
	}
}
