package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
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
	for name, body := range files {
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
			db, err := Open(file)
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
	db, err := Open(file)
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

// TestOpenRefuses what is no bundle, or only a part of one.
func TestOpenRefuses(t *testing.T) {
	whole, err := os.ReadFile(pack(t, map[string]string{"b" + folder + "n.json": `[{"apiVersion":"v1","kind":"Node","metadata":{"name":"edge-1"}}]`}))
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		file []byte
		text string
	}{
		{"a part", whole[:len(whole)-20], "unexpected EOF"},
		{"no archive", slices.Concat(whole[:10], []byte("nothing")), "corrupt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bundle.tar.gz")
			require.NoError(t, os.WriteFile(file, c.file, 0o600))
			_, err := Open(file)
			require.ErrorContains(t, err, file)
			require.ErrorContains(t, err, c.text)
		})
	}
	_, err = Open(pack(t, map[string]string{"b/logs/x.json": `[{"apiVersion":"v1","kind":"Node","metadata":{"name":"edge-1"}}]`}))
	require.ErrorIs(t, err, ErrNone)
	_, err = Open(pack(t, map[string]string{"b" + folder + "n.json": `[{"apiVersion"`}))
	require.ErrorContains(t, err, "n.json")
	require.False(t, Is(filepath.Join(t.TempDir(), "missing")))
}
