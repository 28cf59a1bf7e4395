package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

const served = `[{"groupVersion":"v1","resources":[
	{"name":"nodes","singularName":"node","kind":"Node","namespaced":false,"shortNames":["no"],"verbs":["get"]},
	{"name":"nodes/status","kind":"Node","namespaced":false,"verbs":["get"]},
	{"name":"pods","singularName":"pod","kind":"Pod","namespaced":true,"shortNames":["po"],"verbs":["get"]}]},
	{"groupVersion":"storage.k8s.io/v1","resources":[{"name":"storageclasses","singularName":"storageclass","kind":"StorageClass","namespaced":false,"verbs":["get"]}]}]`

// pack makes an archive of files.
func pack(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	archive := tar.NewWriter(packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		body := files[name]
		require.NoError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(body))}))
		_, err := archive.Write([]byte(body))
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, packed.Close())
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
	return file
}

// objects returns the keys of a collection's objects.
func objects(t *testing.T, db store.DB, id string) (keys []string) {
	t.Helper()
	v, err := db.View(id)
	require.NoError(t, err)
	defer v.Close()
	for h, err := range v.Headers("", "") {
		require.NoError(t, err)
		keys = append(keys, h.Key)
	}
	return keys
}

// TestOpen reads the forms that Troubleshoot's versions write objects in.
func TestOpen(t *testing.T) {
	const pod = `{"metadata":{"name":"till","namespace":"shop","resourceVersion":"7"}}`
	for _, c := range []struct {
		name  string
		files map[string]string
		id    string
		keys  []string
	}{
		{"a list", map[string]string{"pods/shop.json": `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[` + pod + `]}`}, "pods", []string{"shop/till"}},
		{"an array without kinds", map[string]string{"pods/shop.json": `[` + pod + `]`}, "pods", []string{"shop/till"}},
		{"two namespaces", map[string]string{"pods/shop.json": `[` + pod + `]`, "pods/bar.json": `[{"metadata":{"name":"x","namespace":"bar"}}]`}, "pods", []string{"bar/x", "shop/till"}},
		{"a name with dashes", map[string]string{"storage-classes.json": `[{"metadata":{"name":"fast"}}]`}, "storageclasses.storage.k8s.io", []string{"fast"}},
		{"one object", map[string]string{"namespaces.json": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`}, "namespaces", []string{"shop"}},
		{
			"a custom resource as YAML", map[string]string{"custom-resources/widgets.example.com/shop.yaml": "- {apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}}\n"},
			"widgets.example.com", []string{"shop/w"},
		},
		{"an empty list", map[string]string{"pods/shop.json": `{"kind":"PodList","apiVersion":"v1","items":null}`}, "pods", nil},
		{"an empty array", map[string]string{"pods/shop.json": `[]`}, "pods", nil},
		{"what are no objects", map[string]string{
			"pods-errors.json": `{"shop":"forbidden"}`, "auth-cani-list/shop.json": `[{"verbs":["get"]}]`, "groups.json": `null`, "empty.json": "", "text.json": `["forbidden"]`,
			"image-pull-secrets/shop/x.json": `{"registry":"user"}`, "pods/shop.json": `[` + pod + `]`,
		}, "pods", []string{"shop/till"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"support-bundle/version.yaml": "x: y", "support-bundle/cluster-resources/resources.json": served}
			for name, body := range c.files {
				files["support-bundle/cluster-resources/"+name] = body
			}
			file := pack(t, files)
			require.True(t, Is(file))
			db, err := Open(t.Context(), file, Options{Warn: func(text string) { t.Error(text) }})
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			all, err := db.Collections()
			require.NoError(t, err)
			require.Len(t, all, 1)
			require.Equal(t, c.id, all[0].ID)
			require.Equal(t, c.keys, objects(t, db, c.id))
		})
	}
}

// TestDescription has the names of a resource, the columns of a custom one, and the time of the archive.
func TestDescription(t *testing.T) {
	file := pack(t, map[string]string{
		"b" + discovery:          served,
		"b" + folder + "n.json":  `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"edge-1","resourceVersion":"12"}},{"metadata":{"name":"edge-2","resourceVersion":"9"}}]}`,
		"b" + folder + "w1.json": `[{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}]`,
		"b" + folder + "w2.json": `[{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"of another version"}}]`,
		"b" + folder + "c.json": `[{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com",
			"names":{"kind":"Widget"},"versions":[{"name":"v2"},{"name":"v1","additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.size"}],
			"selectableFields":[{"jsonPath":".spec.size"}]}]}}]`,
	})
	at := time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)
	require.NoError(t, os.Chtimes(file, at, at))
	db, err := Open(t.Context(), file, Options{Warn: func(text string) { t.Error(text) }})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()

	nodes, err := db.View("nodes")
	require.NoError(t, err)
	defer nodes.Close()
	require.Equal(t, "12", nodes.State().RV)
	require.True(t, nodes.State().Proven().Equal(at))
	require.False(t, nodes.Info().Namespaced)
	d, err := nodes.Description()
	require.NoError(t, err)
	require.Equal(t, store.Description{Singular: "node", ShortNames: []string{"no"}, Subresources: []string{"status"}}, d)

	widgets, err := db.View("widgets.example.com")
	require.NoError(t, err)
	defer widgets.Close()
	require.EqualValues(t, 1, widgets.State().Count)
	d, err = widgets.Description()
	require.NoError(t, err)
	require.True(t, d.Custom)
	require.Equal(t, []store.Column{{Name: "Size", Type: "integer", JSONPath: ".spec.size"}}, d.Columns)
	require.Equal(t, []string{".spec.size"}, d.SelectableFields)
}

// opened opens a bundle and returns its warnings.
func opened(t *testing.T, file string) (db store.DB, warnings []string) {
	t.Helper()
	db, err := Open(t.Context(), file, Options{Warn: func(text string) { warnings = append(warnings, text) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, warnings
}

// A file that can't be read costs what is missing of it, and is named.
func TestOpen_BadFile_ServesTheRest(t *testing.T) {
	const list = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a","namespace":"shop"}},{"metadata":{"name":"b","namespace":"shop"}}]}`
	whole := map[string]string{"b" + discovery: served, "b" + folder + "pods/bar.json": `[{"metadata":{"name":"x","namespace":"bar"}}]`}
	for _, c := range []struct {
		name, file, body string
		keys             []string
		warning          string
	}{
		{"truncated", "pods/shop.json", list[:len(list)-20], []string{"bar/x", "shop/a"}, "after offset 116; served objects of it: 1"},
		{"cut after an object", "pods/shop.json", list[:len(list)-2], []string{"bar/x", "shop/a", "shop/b"}, "after offset 134; served objects of it: 2"},
		{"text", "pods/shop.json", `{"kind":"PodList","apiVersion":"v1","items":[error`, []string{"bar/x"}, "served objects of it: 0"},
		{"something behind the list", "pods/shop.json", list + "}", []string{"bar/x", "shop/a", "shop/b"}, "invalid character '}'"},
		{"YAML that is none", "pods/shop.yaml", "- {metadata: {name: a, namespace: shop}}\n- {metadata: [\n", []string{"bar/x", "shop/a"}, "yaml: "},
		{"YAML with an alias", "pods/shop.yaml", "- {metadata: {name: a, namespace: shop}}\n- {metadata: {name: b}, x: &x [y], z: *x}\n", []string{"bar/x", "shop/a"}, "line 1: an alias, *x"},
		{"nested too deep", "pods/shop.json", `[` + strings.Repeat("[", 20_000), []string{"bar/x"}, "exceeded max depth"},
		{"one object that is cut off", "pods/shop.json", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"`, []string{"bar/x"}, "not a valid JSON object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := maps.Clone(whole)
			files["b"+folder+c.file] = c.body
			db, warnings := opened(t, pack(t, files))
			require.Equal(t, c.keys, objects(t, db, "pods"))
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], folder+c.file+" can't be read to its end: ")
			require.Contains(t, warnings[0], c.warning)
		})
	}
	t.Run("discovery", func(t *testing.T) {
		files := maps.Clone(whole)
		files["b"+discovery] = served[:40]
		files["b"+folder+"nodes.json"] = `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"edge-1"}}]}`
		db, warnings := opened(t, pack(t, files))
		require.Equal(t, []string{"edge-1"}, objects(t, db, "nodes"))
		require.Contains(t, warnings[0], discovery+" can't be read, so the names of resources are guesses")
	})
}

// The objects of a resource may be in several places, and the type of a long list after its items.
func TestOpen_Order(t *testing.T) {
	node, long := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"edge-1","resourceVersion":"5"}}`, strings.Repeat("x", maxObjectBytes/2)
	pod := func(name, rv, text string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","resourceVersion":%q},"spec":%q}`, name, rv, text)
	}
	file := pack(t, map[string]string{
		"b" + folder + "a.json": `{"apiVersion":"v1","items":[` + pod("a", "9", long) + "," + pod("b", "3", long) + "," + pod("c", "4", long) + `],"kind":"PodList"}`,
		"b" + folder + "b.json": "[" + node + "]",
		"b" + folder + "c.json": "[" + pod("d", "7", "") + "," + node + "," + pod("a", "12", "") + "]",
	})
	db, warnings := opened(t, file)
	require.Empty(t, warnings)
	require.Equal(t, []string{"shop/a", "shop/b", "shop/c", "shop/d"}, objects(t, db, "pods"))
	require.Equal(t, []string{"edge-1"}, objects(t, db, "nodes"))
	v, err := db.View("pods")
	require.NoError(t, err)
	defer v.Close()
	require.Equal(t, "12", v.State().RV)
	require.EqualValues(t, 4, v.State().Count)
}

// Of an archive that ends early, what came before is served.
func TestOpen_ArchiveCut_ServesTheBeginning(t *testing.T) {
	noise := make([]byte, 100_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	file := pack(t, map[string]string{
		"b" + folder + "nodes.json": `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"edge-1"}}]}`,
		"b" + folder + "z.json":     `[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"till","annotations":{"x":"` + hex.EncodeToString(noise) + `"}}}]`,
	})
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, whole[:len(whole)/2], 0o600))
	db, warnings := opened(t, file)
	require.Equal(t, []string{"edge-1"}, objects(t, db, "nodes"))
	require.Len(t, warnings, 2)
	require.Contains(t, warnings[0], folder+"z.json can't be read to its end: unexpected EOF")
	require.Contains(t, warnings[1], "the archive can't be read to its end: unexpected EOF: what comes after "+folder+"z.json is missing")
}

// Loading ends with its context, and leaves no file.
func TestOpen_Cancelled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	body := `[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}` + strings.Repeat(`,{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}`, 1000) + `]`
	file := pack(t, map[string]string{"b" + folder + "pods.json": body})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Open(ctx, file, Options{Progress: func(int64, int64) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, file)
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// What an archive claims is bounded: a file that is too long is left out, too many of them are refused.
func TestOpen_Limits(t *testing.T) {
	bomb := func(files int, each int64) string {
		file := filepath.Join(t.TempDir(), "bomb.tar.gz")
		f, err := os.Create(file)
		require.NoError(t, err)
		packed, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
		require.NoError(t, err)
		archive := tar.NewWriter(packed)
		for i := range files {
			name := fmt.Sprintf("b%s%d.json", folder, i)
			require.NoError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: each}))
			_, err := io.Copy(archive, io.LimitReader(spaces{}, each))
			require.NoError(t, err)
		}
		require.NoError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "b" + folder + "z.json", Mode: 0o600, Size: int64(len(served))}))
		_, err = archive.Write([]byte(served))
		require.NoError(t, errors.Join(err, archive.Close(), packed.Close(), f.Close()))
		return file
	}
	if !testing.Short() { // minutes under the race detector or an emulator
		_, err := Open(t.Context(), bomb(9, maxFileBytes), Options{})
		require.ErrorContains(t, err, "its objects have more than 1024 MiB")
	}
	var warnings []string
	_, err := Open(t.Context(), bomb(1, maxFileBytes+1), Options{Warn: func(text string) { warnings = append(warnings, text) }})
	require.ErrorIs(t, err, ErrNone)
	require.Equal(t, []string{folder + "0.json is left out: it has 134217729 bytes, more than 128 MiB"}, warnings)
}

type spaces struct{}

var blanks = bytes.Repeat([]byte(" "), 64<<10)

func (spaces) Read(p []byte) (int, error) { return copy(p, blanks), nil }

// TestOpenRefuses what is no bundle, or only a part of one.
func TestOpenRefuses(t *testing.T) {
	whole, err := os.ReadFile(pack(t, map[string]string{"b" + folder + "n.json": `[{"apiVersion":"v1","kind":"Node","metadata":{"name":"edge-1"}}]`}))
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		file []byte
		text string
	}{
		{"a part", whole[:len(whole)/2], "unexpected EOF"},
		{"no archive", slices.Concat(whole[:10], []byte("nothing")), "corrupt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bundle.tar.gz")
			require.NoError(t, os.WriteFile(file, c.file, 0o600))
			_, err := Open(t.Context(), file, Options{})
			require.ErrorContains(t, err, file)
			require.ErrorContains(t, err, c.text)
		})
	}
	_, err = Open(t.Context(), pack(t, map[string]string{"b/logs/x.json": `[{"apiVersion":"v1","kind":"Node","metadata":{"name":"edge-1"}}]`}), Options{})
	require.ErrorIs(t, err, ErrNone)
	_, err = Open(t.Context(), pack(t, map[string]string{"b" + folder + "n.json": `[{"apiVersion"`}), Options{})
	require.ErrorIs(t, err, ErrNone)
	require.False(t, Is(filepath.Join(t.TempDir(), "missing")))
}
